/* Looks at a page of a profile from inside, as a person would: reads its figures, looks at its
 * pixels, moves the pointer. tests/profile_page.sh puts it in front of the page's own scripts; at the
 * end its last element is a report: a line for each check, the last "done". */
'use strict';
(() => {
    const lines = [];
    const check = (what, ok, found) =>
        lines.push(ok ? `ok ${what}` : `FAIL ${what}: ${JSON.stringify(found)}`);
    const troubles = [];
    addEventListener('error', (event) => troubles.push(event.message));
    addEventListener('securitypolicyviolation', (event) => troubles.push(event.blockedURI));
    const errors = console.error;
    console.error = (...args) => { troubles.push(args.join(' ')); errors(...args); };

    const all = (selector, from = document) => [...from.querySelectorAll(selector)];
    const sum = (list) => list.reduce((a, b) => a + b, 0);
    /* Without a screen there are no frames to wait for. */
    window.requestAnimationFrame = (draw) => setTimeout(draw, 16);
    /* Until what changed is drawn, and its text is there. */
    const pause = () => new Promise((done) => setTimeout(done, 250));

    /* "9.8 MiB", "835 µs", "2 min 05 s", "78 %", "1 024" as a number of bytes, seconds, ... */
    const SCALE = {B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, µs: 1e-6, ms: 1e-3, s: 1, min: 60,
        h: 3600, '%': 0.01, 'tokens/s': 1, 'MiB/s': 2 ** 20, 'GiB/s': 2 ** 30};
    const value = (text) => {
        const clean = text.replace(/\u202f/g, '').replace(/\u00a0/g, ' ');
        return sum([...clean.matchAll(/(-?[\d.]+)(?: (\S+))?/g)].map(([, n, unit]) => n * (SCALE[unit] || 1)));
    };
    /* Printed with at least two digits; shares with no more than a tenth of a per cent. */
    const near = (text, expected) => Math.abs(value(text) - expected) <= Math.max(0.0051 * expected, 0)
        || (text.includes('%') && Math.abs(value(text) - expected) <= 0.0051)
        || Math.abs(value(text) - expected) <= 0.051 * (SCALE[text.split(/\s/)[1]] || 1);

    function checkFigures(doc) {
        const shown = Object.fromEntries(all('#figures div')
            .map((div) => [div.querySelector('dt').textContent, div.querySelector('dd').textContent]));
        const total = (kind, name) =>
            sum(doc.phases.filter((phase) => phase.kind === kind).map((phase) => phase[name]));
        const d = (name) => total('decode', name);
        const expected = {
            'Decoding': d('rows') / d('seconds'),
            'Prefill': total('prefill', 'rows') / total('prefill', 'seconds'),
            'Share of the bound': d('bound_s') / d('seconds'),
            'Waiting': d('wait_s') / d('seconds'),
            'Read per token': d('bytes_read') / d('rows'),
            'Hit rate': sum(doc.parts.map((part) => part[3])) / sum(doc.parts.map((part) => part[2])),
        };
        for (const [name, number] of Object.entries(expected))
            check(`figure ${name}`, name in shown && near(shown[name], number), [shown[name], number]);
        check('the model', document.querySelector('#model').textContent === doc.model);
        check('the verdict', document.querySelector('h1').textContent === doc.verdict);
        check('the title', document.title.startsWith(doc.model.trim().slice(0, 8)), document.title);
    }

    const rowsOf = (table) => all('tbody tr', table).map((tr) => all('td, th', tr).map((td) => td.textContent));

    function checkTables(doc) {
        const time = rowsOf(document.querySelector('#time table'));
        const used = Object.values(doc.categories).filter((s) => s > 0);
        check('every category', time.length === used.length && time.every((row, i) => near(row[1], used[i])), time);
        check('they are the whole', Math.abs(sum(time.map((row) => value(row[2]))) - 1) < 0.03, time);

        const table = document.querySelector('#units table');
        const names = all('thead th', table).map((th) => th.textContent);
        const by = (name) => rowsOf(table).map((row) => row[names.indexOf(name)]);
        check('every unit', rowsOf(table).length === doc.units.length, rowsOf(table).length);
        const longest = doc.units.reduce((a, b) => (b.wait_s > a.wait_s ? b : a));
        check('the longest wait first', by('unit')[0] === longest.name && near(by('waiting')[0], longest.wait_s), by('unit')[0]);
        all('thead button', table)[names.indexOf('bytes')].click();
        const bytes = by('bytes').map(value);
        check('sorted by bytes', bytes.every((n, i) => !i || bytes[i - 1] >= n), bytes);
        check('all bytes', near(by('bytes')[0], Math.max(...doc.units.map((unit) => unit.bytes))), by('bytes')[0]);
        all('thead button', table)[names.indexOf('bytes')].click();
        check('the other way', by('bytes').map(value).every((n, i, list) => !i || list[i - 1] <= n));
    }

    /* How many pixels of a canvas have this colour. */
    function pixels(from, name) {
        const copy = document.createElement('canvas');
        [copy.width, copy.height] = [from.width, from.height];
        const ctx = copy.getContext('2d', {willReadFrequently: true});
        ctx.drawImage(from, 0, 0);
        const colour = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
        const [r, g, b] = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
        const {data} = ctx.getImageData(0, 0, copy.width, copy.height);
        let n = 0;
        for (let i = 0; i < data.length; i += 4)
            n += data[i] === r && data[i + 1] === g && data[i + 2] === b;
        return n;
    }

    const canvas = () => document.querySelector('#timeline');
    const tip = () => document.querySelector('#tip');
    const shown = () => document.querySelector('#shown').textContent;
    const move = (x, y, type = 'pointermove') => {
        const box = canvas().getBoundingClientRect();
        canvas().dispatchEvent(new PointerEvent(type,
            {clientX: box.left + x, clientY: box.top + y, pointerId: 1, bubbles: true, cancelable: true}));
    };
    const wheel = (deltaY) => canvas().dispatchEvent(new WheelEvent('wheel',
        {deltaY, clientX: canvas().getBoundingClientRect().left + 50, bubbles: true, cancelable: true}));
    const press = (key) => canvas().dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));

    /* Moves over the timeline until the tip begins so; returns its lines. */
    function hover(start) {
        const {width, height} = canvas().getBoundingClientRect();
        for (let y = 30; y < height; y += 6) {
            for (let x = 1; x < width; x += 7) {
                move(x, y);
                if (!tip().hidden && tip().textContent.startsWith(start))
                    return all('div, b', tip()).map((line) => line.textContent);
            }
        }
        return null;
    }

    function checkHover(doc) {
        const {timeline, units} = doc;
        const find = (list, lines) => lines && list.find((event) => lines[1] === `from ${event[0].toFixed(6)}\u00a0s`);
        const kinds = [
            ['pass:', timeline.passes, (event) => event[1] - event[0]],
            ['waiting for', timeline.waits, (event) => event[1]],
            ['reading for', timeline.reads, (event) => event[1] - event[0]],
        ];
        for (const [start, list, duration] of kinds) {
            const lines = hover(start);
            const event = find(list, lines);
            check(`the tip of ${start}`, event && lines.some((line) => line.startsWith('took ')
                && near(line.slice(5).split(' until')[0], duration(event))), lines);
            if (event && start !== 'pass:') {
                const unit = units[event[start === 'waiting for' ? 2 : 4]];
                check(`the unit of ${start}`, lines[0] === `${start} ${unit.name}`, lines[0]);
            }
        }
        move(-5, -5, 'pointerleave');
        check('the tip goes', tip().hidden);
    }

    async function checkMoves() {
        const span = () => value(shown().split(' from')[0]);
        const first = shown();
        wheel(-400);
        await pause();
        check('the wheel comes closer', span() < value(first.split(' from')[0]) * 0.6, shown());
        press('Home');
        await pause();
        check('Home resets', shown() === first, shown());
        move(200, 100, 'pointerdown');
        move(120, 100);
        move(120, 100, 'pointerup');
        await pause();
        check('dragging moves', shown() !== first, shown());
        press('a');
        await pause();
        const total = value(shown().match(/of ([^)]*)\)/)[1]);
        check('A shows all', Math.abs(span() - total) < 0.02 * total, shown());
        move(100, 10, 'pointerdown');
        move(150, 10);
        move(150, 10, 'pointerup');
        await pause();
        check('dragging on the scale zooms', span() < total / 3, shown());
        press('n');
        check('N shows a wait', !tip().hidden && tip().textContent.startsWith('waiting for'), tip().textContent);
        document.querySelector('[data-do=reset]').click();
        await pause();
        check('the button resets', shown() === first, shown());
    }

    function checkStrips() {
        const strips = all('figure svg');
        check('six strips', strips.length === 6, strips.length);
        for (const strip of strips) {
            const box = strip.getBoundingClientRect();
            strip.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + box.width / 2, clientY: box.top + 9}));
            check('a strip has columns and a tip', strip.querySelectorAll('path').length > 0 && !tip().hidden, tip().textContent);
            strip.dispatchEvent(new PointerEvent('pointerleave', {}));
        }
    }

    addEventListener('load', async () => {
        const doc = JSON.parse(document.getElementById('document').textContent);
        canvas().setPointerCapture = () => {}; /* made-up pointers cannot be captured */
        await pause();
        try {
            check('it fits the width', document.documentElement.scrollWidth <= innerWidth,
                [document.documentElement.scrollWidth, innerWidth]);
            checkFigures(doc);
            checkTables(doc);
            for (const name of ['experts', 'delta_net', 'wait', 'demand', 'predicted'])
                check(`${name} can be seen`, pixels(canvas(), name) > 50, pixels(canvas(), name));
            check('the overview can be seen', pixels(document.querySelector('#overview'), 'experts') > 10);
            checkHover(doc);
            await checkMoves();
            checkStrips();
            check('no script of the document ran', !window.owned && !document.querySelector('main img'));
        } catch (error) {
            troubles.push(error.stack);
        }
        check('no errors', !troubles.length, troubles);
        const report = document.createElement('pre');
        report.textContent = [...lines, 'done'].join('\n');
        report.id = 'report';
        document.body.append(report);
    });
})();
