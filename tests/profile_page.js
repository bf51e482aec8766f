/* Looks at a page of a profile from inside, as a person would: reads its figures, looks at its
 * pixels, moves the pointer. tests/profile_page.sh puts it in front of the page's own scripts; at
 * the end the page's last element is a report: a line for each check, the last "done". */
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
    /* Whether this becomes true: a change is drawn with the next frame, and said a little later. */
    async function becomes(condition) {
        for (let tries = 0; tries < 40 && !condition(); tries++)
            await new Promise((done) => setTimeout(done, 50));
        return condition();
    }

    /* "9.8 MiB", "835 µs", "2 min 05 s", "78 %", "1 024" as a number of bytes, seconds, ... */
    const SCALE = {B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, µs: 1e-6, ms: 1e-3, s: 1,
        min: 60, h: 3600, '%': 0.01, 'tokens/s': 1, 'MiB/s': 2 ** 20, 'GiB/s': 2 ** 30};
    const value = (text) => {
        const clean = text.replace(/\u202f/g, '').replace(/\u00a0/g, ' ');
        return sum([...clean.matchAll(/(-?[\d.]+)(?: (\S+))?/g)]
            .map(([, n, unit]) => n * (SCALE[unit] || 1)));
    };
    const unitOf = (text) => SCALE[text.split(/\s/)[1]] || 1;
    /* As far as the digits go: three, or one behind the point, or whole per cents. */
    const near = (text, expected) => Math.abs(value(text) - expected)
        <= Math.max(0.0051 * expected, (text.includes('%') ? 0.51 : 0.051) * unitOf(text));

    function checkFigures(doc) {
        const shown = Object.fromEntries(all('#figures div')
            .map((div) => ['dt', 'dd'].map((name) => div.querySelector(name).textContent)));
        const total = (kind, name) =>
            sum(doc.phases.filter((phase) => phase.kind === kind).map((phase) => phase[name]));
        const parts = (column) => sum(doc.parts.map((part) => part[column]));
        const d = (name) => total('decode', name);
        const expected = {
            'Decoding': d('rows') / d('seconds'),
            'Prefill': total('prefill', 'rows') / total('prefill', 'seconds'),
            'Share of the bound': d('bound_s') / d('seconds'),
            'Waiting': d('wait_s') / d('seconds'),
            'Read per token': d('bytes_read') / d('rows'),
            'Hit rate': parts(3) / parts(2),
        };
        for (const [name, number] of Object.entries(expected))
            check(`figure ${name}`, name in shown && near(shown[name], number),
                [shown[name], number]);
        check('the model', document.querySelector('#model').textContent === doc.model);
        const verdict = document.querySelector('h1').textContent.replace(/\u00a0/g, ' ');
        check('the verdict', verdict === doc.verdict, verdict);
        check('the title', document.title.startsWith(doc.model.trim().slice(0, 8)), document.title);
    }

    const rowsOf = (table) => all('tbody tr', table)
        .map((tr) => all('td, th', tr).map((td) => td.textContent));

    function checkTables(doc) {
        const time = rowsOf(document.querySelector('#time table'));
        const used = Object.values(doc.categories).filter((s) => s > 0);
        check('every category', time.length === used.length, time);
        check('their times', time.every((row, i) => near(row[1], used[i])), time);
        check('are the whole', Math.abs(sum(time.map((row) => value(row[2]))) - 1) < 0.03, time);

        const table = document.querySelector('#units table');
        const names = all('thead th', table).map((th) => th.textContent);
        const by = (name) => rowsOf(table).map((row) => row[names.indexOf(name)]);
        const press = (name) => all('thead button', table)[names.indexOf(name)].click();
        const most = (name) => doc.units.reduce((a, b) => (b[name] > a[name] ? b : a));
        const falls = (list) => list.every((n, i) => !i || list[i - 1] >= n);
        check('every unit', by('unit').length === doc.units.length, by('unit').length);
        check('the longest wait first', by('unit')[0] === most('wait_s').name, by('unit')[0]);
        check('its time', near(by('waiting')[0], most('wait_s').wait_s), by('waiting')[0]);
        press('bytes');
        check('sorted by bytes', falls(by('bytes').map(value)), by('bytes'));
        check('the most bytes', near(by('bytes')[0], most('bytes').bytes), by('bytes')[0]);
        press('bytes');
        check('the other way', falls(by('bytes').map(value).reverse()), by('bytes'));
    }

    /* How many pixels of a canvas have this colour. */
    function pixels(from, name) {
        const copy = document.createElement('canvas');
        [copy.width, copy.height] = [from.width, from.height];
        const ctx = copy.getContext('2d', {willReadFrequently: true});
        ctx.drawImage(from, 0, 0);
        const style = getComputedStyle(document.documentElement);
        const colour = style.getPropertyValue(`--${name}`).trim();
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
    const send = (Kind, type, x, y, more) => {
        const {left, top} = canvas().getBoundingClientRect();
        canvas().dispatchEvent(new Kind(type,
            {clientX: left + x, clientY: top + y, bubbles: true, cancelable: true, ...more}));
    };
    const move = (x, y, type = 'pointermove') => send(PointerEvent, type, x, y, {pointerId: 1});
    const wheel = (deltaY) => send(WheelEvent, 'wheel', 50, 100, {deltaY});
    const press = (key) => send(KeyboardEvent, 'keydown', 0, 0, {key});
    const drag = (from, to, y) => {
        move(from, y, 'pointerdown');
        move(to, y);
        move(to, y, 'pointerup');
    };

    /* Moves over the timeline until the tip begins so; returns its lines, and the moment there. */
    function hover(start) {
        const {width, height} = canvas().getBoundingClientRect();
        for (let y = 30; y < height; y += 6) {
            for (let x = 1; x < width; x += 7) {
                move(x, y);
                if (tip().hidden || !tip().textContent.startsWith(start))
                    continue;
                const [span, from] = shown().split('(')[0].split(' from').map(value);
                const lines = all('div, b', tip()).map((line) => line.textContent);
                return {lines, at: from + (span * x) / width, near: 0.01 * span};
            }
        }
        return {lines: []};
    }

    function checkHover(doc) {
        const {timeline, units} = doc;
        const from = (event) => `from ${event[0].toFixed(6)}\u00a0s`;
        const kinds = [
            ['pass:', timeline.passes, (event) => event[1] - event[0]],
            ['waiting for', timeline.waits, (event) => event[1]],
            ['reading for', timeline.reads, (event) => event[1] - event[0]],
        ];
        for (const [start, list, duration] of kinds) {
            const {lines, at, near: margin} = hover(start);
            const event = list.find((one) => lines[1] === from(one));
            check(`${start} is where the pointer is`, event && at > event[0] - margin
                && at < event[0] + duration(event) + margin, [lines, at]);
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
        const span = (text = shown()) => value(text.split(' from')[0]);
        const first = shown();
        const total = value(first.match(/of ([^)]*)\)/)[1]);
        const is = async (what, condition) => check(what, await becomes(condition), shown());
        wheel(-400);
        await is('the wheel comes closer', () => span() < span(first) * 0.6);
        press('Home');
        await is('Home resets', () => shown() === first);
        drag(200, 120, 100);
        await is('dragging moves', () => shown() !== first && span() === span(first));
        press('a');
        await is('A shows all', () => Math.abs(span() - total) < 0.02 * total);
        drag(100, 150, 10);
        await is('dragging on the scale zooms', () => span() < total / 3);
        press('n');
        const tips = tip().hidden ? '' : tip().textContent;
        check('N shows a wait', tips.startsWith('waiting for'), tips);
        document.querySelector('[data-do=reset]').click();
        await is('the button resets', () => shown() === first);
        press('PageDown');
        await is('Page Down shows the next pass', () => span() < span(first) * 0.6);
    }

    function checkStrips() {
        const strips = all('figure svg');
        check('six strips', strips.length === 6, strips.length);
        for (const strip of strips) {
            const box = strip.getBoundingClientRect();
            strip.dispatchEvent(new PointerEvent('pointermove',
                {clientX: box.left + box.width / 2, clientY: box.top + 9}));
            check('a strip has columns', all('path', strip).length > 0);
            check('a strip has tips', !tip().hidden, tip().textContent);
            strip.dispatchEvent(new PointerEvent('pointerleave', {}));
        }
    }

    addEventListener('load', async () => {
        const doc = JSON.parse(document.getElementById('document').textContent);
        canvas().setPointerCapture = () => {}; /* made-up pointers cannot be captured */
        try {
            check('it says what is shown', await becomes(() => shown() !== ''));
            check('it fits the width', document.documentElement.scrollWidth <= innerWidth,
                [document.documentElement.scrollWidth, innerWidth]);
            checkFigures(doc);
            checkTables(doc);
            for (const name of ['experts', 'delta_net', 'wait', 'demand', 'predicted'])
                check(`${name} can be seen`, pixels(canvas(), name) > 50, pixels(canvas(), name));
            const overview = pixels(document.querySelector('#overview'), 'experts');
            check('the overview can be seen', overview > 10, overview);
            checkHover(doc);
            await checkMoves();
            checkStrips();
            check('no script of the document ran', !window.owned && !all('img').length);
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
