/* What the page shows of the document (docs/profile-format.md), section by section. */

const KINDS = {
    startup: 'startup', attention: 'attention', delta_net: 'delta net', mlp: 'MLP',
    experts: 'experts', head: 'head', sampling: 'sampling', wait: 'waiting', other: 'other',
};
const CLASSES = {
    demand: 'a pass waits for it', sequential: 'ahead, in the order of the pass',
    predicted: 'ahead, for a guess',
};
const doc = JSON.parse($('document').textContent);
const colourOf = (kind) => (kind in KINDS ? kind : 'other');
const nameOf = (kind) => KINDS[kind] || kind;
const unitName = (u) => (doc.units[u] ? doc.units[u].name : 'between passes');

/* All phases of one kind as one; null: there is none. */
function phaseOf(kind) {
    const list = doc.phases.filter((phase) => phase.kind === kind);
    const whole = {kind, tokens: sum(list, (phase) => phase.rows), n: list.length};
    for (const name of ['passes', 'seconds', 'wait_s', 'compute_s', 'busy_s', 'bytes_read',
        'bound_s'])
        whole[name] = sum(list, (phase) => phase[name]);
    return whole.tokens && whole.seconds > 0 ? whole : null;
}
const decode = phaseOf('decode');
const prefill = phaseOf('prefill');
const central = decode || prefill;

/* ---- head ---- */
/* [what, figure, more]. */
function figures() {
    const list = [];
    for (const phase of [decode, prefill].filter(Boolean)) {
        list.push([phase === decode ? 'Decoding' : 'Prefill',
            `${speed(phase.tokens / phase.seconds)}${GAP}tokens/s`,
            `${count(phase.tokens)} tokens in ${seconds(phase.seconds)}`]);
    }
    if (central) {
        const per = (name) => seconds(central[name] / central.tokens);
        list.push(['Share of the bound', percent(central.bound_s / central.seconds),
            `at the least ${per('bound_s')} per token`]);
        list.push(['Waiting', percent(central.wait_s / central.seconds),
            `${per('wait_s')} of ${per('seconds')} per token`]);
        list.push(['Read per token', bytes(central.bytes_read / central.tokens),
            central.busy_s ? `at ${rate(central.bytes_read / central.busy_s)}` : '']);
    }
    const needs = sum(doc.parts, (part) => part[2]);
    if (needs)
        list.push(['Hit rate', percent(sum(doc.parts, (part) => part[3]) / needs),
            `of ${count(needs)} experts asked for`]);
    return list;
}

function drawHead() {
    const {budget, machine, options} = doc;
    document.title = `${doc.model}: profile`;
    $('model').textContent = doc.model;
    $('verdict').textContent = (doc.verdict || 'Nothing was computed')
        .replace(/(\d) (?=%|[KMGT]iB)/g, `$1${GAP}`);
    $('about').textContent = [
        `sluice ${doc.command} ${doc.file}`,
        budget && budget.limit ? `${bytes(budget.limit)} of memory` : '',
        machine && machine.engine ? machine.engine : options.io,
        machine && machine.threads ? `${machine.threads} threads, ${machine.cpu_level}` : '',
        `${seconds(doc.wall_s)} in all`,
    ].filter(Boolean).join(' · ');
    $('figures').append(...figures().map(([what, figure, more]) => html('div', {},
        html('dt', {}, what), html('dd', {}, figure), html('dd', {class: 'quiet'}, more))));
}

/* ---- timeline ---- */
function eventTip(title, event, lines) {
    return [title, ['from', moment(event[0])], ...lines];
}

function passLane() {
    const name = ([, , kind, rows]) => (rows > 1 ? `${kind}, ${count(rows)} rows` : kind);
    return makeLane({
        name: 'pass', events: doc.timeline.passes, height: 16, end: (pass) => pass[1],
        colour: (pass) => (pass[2] === 'decode' ? 'decode' : 'prefill'), label: name,
        tip: (pass) =>
            eventTip(`pass: ${name(pass)}`, pass, [['took', seconds(pass[1] - pass[0])]]),
    });
}

function computeLane() {
    const {kinds, compute} = doc.timeline;
    return makeLane({
        name: 'compute', title: 'Computing', events: compute, height: 44,
        overview: -1, end: (event) => event[0] + event[1],
        colour: (event) => colourOf(kinds[event[3]]), label: (event) => unitName(event[2]),
        tip: (event) => eventTip(unitName(event[2]), event,
            [['computing', nameOf(kinds[event[3]])], ['took', seconds(event[1])]]),
    });
}

function waitLane() {
    return makeLane({
        name: 'wait', title: 'Waiting', events: doc.timeline.waits, height: 22,
        overview: 1, end: (event) => event[0] + event[1], colour: () => 'wait',
        label: (event) => unitName(event[2]), part: (event) => `${event[2]} ${event[3]}`,
        tip: (event) => eventTip(`waiting for ${unitName(event[2])}`, event,
            [['took', seconds(event[1])], ...(event[3] >= 0 ? [['part', count(event[3])]] : [])]),
    });
}

function readLane(name, number) {
    const colour = name in CLASSES ? name : 'other';
    return makeLane({
        name: `read ${name}`, title: `Reads: ${name}`, more: CLASSES[name], deep: true,
        end: (event) => event[1], colour: () => colour,
        events: doc.timeline.reads.filter((event) => event[3] === number),
        size: (event) => event[2], part: (event) => `${event[4]} ${event[5]}`,
        tip: (event) => eventTip(`reading for ${unitName(event[4])}`, event, [
            ['took', `${seconds(event[1] - event[0])} until ${moment(event[1])}`],
            ['read', `${bytes(event[2])} (${name})`],
            ...(event[5] >= 0 ? [['part', count(event[5])]] : []),
        ]),
    });
}

/* A few decode passes out of the middle; without any, all. */
function firstView() {
    const passes = doc.timeline.passes.filter((pass) => pass[2] === 'decode');
    if (!passes.length)
        return null;
    const first = Math.max(0, Math.floor(passes.length / 2) - 1);
    const from = passes[first][0], to = passes[Math.min(first + 2, passes.length - 1)][1];
    return {from: from - (to - from) * 0.02, to: to + (to - from) * 0.02};
}

function drawTimelineSection() {
    const {passes, kinds, classes, compute, complete} = doc.timeline;
    if (!compute.length)
        return;
    $('timeline-section').hidden = false;
    $('cut').hidden = complete;
    const used = new Set(compute.map((event) => event[3]));
    const shown = kinds.filter((_, kind) => used.has(kind))
        .map((kind) => [colourOf(kind), nameOf(kind)]);
    const reads = classes.map(readLane).filter((lane) => lane.events.length);
    $('timeline-legend').append(legend([...shown, ['wait', 'waiting']]));
    startTimeline([passLane(), computeLane(), waitLane(), ...reads], passes, firstView());
}

/* ---- where the time goes ---- */
/* Seconds by category in all phases of this kind. */
function categoriesOf(kind) {
    const seconds = {};
    for (const phase of doc.phases.filter((one) => one.kind === kind))
        for (const [name, s] of Object.entries(phase.categories || {}))
            seconds[name] = (seconds[name] || 0) + s;
    return seconds;
}

function drawTime() {
    const parts = [['whole run', doc.categories], ['prefill', categoriesOf('prefill')],
        ['decoding', categoriesOf('decode')]]
        .map(([name, by]) => ({name, by, all: sum(Object.values(by), (s) => s)}))
        .filter((part) => part.all > 0);
    const kinds = Object.keys(doc.categories).filter((kind) => doc.categories[kind] > 0);
    const named = (kind) => [swatch(colourOf(kind)), nameOf(kind)];
    for (const {name, by, all} of parts) {
        const pieces = kinds.map((kind) => [colourOf(kind), nameOf(kind), by[kind] || 0]);
        $('time').append(html('p', {class: 'quiet'}, `${name}, ${seconds(all)}`),
            stack(pieces, all, seconds));
    }
    $('time').append(plainTable('', [
        {name: 'category', of: (kind) => kind, show: named},
        {name: 'time', of: (kind) => doc.categories[kind], show: seconds},
        ...parts.map(({name, by, all}) =>
            ({name, of: (kind) => (by[kind] || 0) / all, show: percent})),
        {name: 'held up by reads', of: (kind) => doc.waits[kind], show: seconds},
    ], kinds));
}

/* ---- disk, computing, bound ---- */
function boundRows(phase) {
    const per = phase.kind === 'decode' ? phase.tokens : 1;
    const widest = Math.max(phase.seconds, phase.busy_s);
    const rest = phase.seconds - phase.compute_s - phase.wait_s;
    const row = (what, all, ...parts) => {
        const bar = stack(parts.map(([colour, name, amount]) => [colour, name, amount / per]),
            widest / per, seconds, phase.bound_s / per);
        return html('tr', {}, html('td', {}, what), html('td', {}, seconds(all / per)),
            html('td', {class: 'wide'}, bar));
    };
    const compute = ['compute', 'computing', phase.compute_s];
    return [
        row('it took', phase.seconds, compute, ['wait', 'waiting', phase.wait_s],
            ['other', 'other', rest]),
        row('computing', phase.compute_s, compute),
        row('the disk was busy', phase.busy_s, ['disk', 'disk', phase.busy_s]),
    ];
}

function drawBound() {
    for (const phase of [decode, prefill].filter(Boolean)) {
        const title = phase === decode ? 'Decoding, per token'
            : `Prefill of ${count(phase.tokens)} tokens`;
        $('bound').append(html('h3', {}, title),
            html('table', {}, html('tbody', {}, ...boundRows(phase))),
            html('p', {class: 'quiet'}, 'The line is the bound: had reading and computing'
                + ` overlapped completely. ${percent(phase.bound_s / phase.seconds)} of it was`
                + ' reached.'));
    }
    $('bound').append(legend([['compute', 'computing'], ['wait', 'waiting'], ['disk', 'disk']]));
    if (!doc.what_if || !doc.what_if.length)
        return;
    $('bound').append(html('h3', {}, 'With more memory (simulated)'), plainTable('', [
        {name: 'in addition', of: (row) => row.more_bytes, show: bytes},
        {name: 'it would take', of: (row) => row.seconds, show: seconds},
        {name: 'speed', of: (row) => row.gain, show: (gain) => `+${percent(gain)}`},
    ], doc.what_if));
}

/* ---- over the run ---- */
function drawRun() {
    const kind = central ? central.kind : '';
    const points = doc.series.map((point, pass) => ({...point, pass}))
        .filter((point) => point.kind === kind);
    if (points.length < 2)
        return;
    $('run-section').hidden = false;
    const columns = [
        {name: 'pass', of: (point) => point.pass + 1, show: count},
        {name: 'until', of: (point) => point.t, show: moment},
        {name: 'computing', of: (point) => point.compute_s, show: seconds},
        {name: 'waiting', of: (point) => point.wait_s, show: seconds},
        {name: 'read', of: (point) => point.bytes, show: bytes},
        {name: 'hits', of: (point) => point.hit_rate, show: percent},
    ];
    const common = {
        n: points.length, choose: (i) => showPass(points[i].pass),
        ends: [points[0], points[points.length - 1]].map((point) => `pass ${point.pass + 1}`),
        describe: (i) => [`${kind} pass`, ...columns.filter((column) => known(column.of(points[i])))
            .map((column) => [column.name, column.show(column.of(points[i]))])],
    };
    const one = (colour, of) => ({colour: () => colour, of: (i) => of(points[i])});
    const host = $('run');
    strip(host, {...common, title: `Time per ${kind} pass`, show: seconds,
        limit: central.bound_s / central.passes, more: '(dashed: the bound)',
        series: [one('compute', (point) => point.compute_s),
            one('wait', (point) => point.wait_s)]});
    strip(host, {...common, title: 'Bytes read', show: bytes,
        series: [one('disk', (point) => point.bytes)]});
    const hits = points.some((point) => known(point.hit_rate));
    if (hits)
        strip(host, {...common, title: 'Hit rate', show: percent, most: 1,
            series: [one('experts', (point) => point.hit_rate)]});
    host.append(legend([['compute', 'computing'], ['wait', 'waiting'], ['disk', 'read'],
        ...(hits ? [['experts', 'experts that were there']] : [])]), html('details', {},
        html('summary', {}, 'The figures as a table'), html('div', {class: 'scroll', tabindex: '0'},
            plainTable('', columns, points))));
}

/* ---- unit by unit ---- */
/* Columns after the name: [name, of(unit), show, what it means]. */
const UNIT_COLUMNS = [
    ['waiting', (unit) => unit.wait_s, seconds, 'the pass stood still for it'],
    ['computing', (unit) => unit.compute_s, seconds],
    ['disk', (unit) => unit.read_s, seconds, 'the disk was busy for it'],
    ['overlap', (unit) => unit.overlap_s, seconds, 'of this, something was computed'],
    ['bytes', (unit) => unit.bytes, bytes],
    ['reads', (unit) => unit.reads, count],
    ['needs', (unit) => unit.needs, count, 'parts asked for'],
    ['hits', (unit) => (unit.needs ? unit.hits / unit.needs : null), percent,
        'there when asked for'],
    ['misses', (unit) => unit.misses, count, 'not there and not on their way'],
    ['in time', (unit) => unit.in_time, count, 'hits that were read ahead for this use'],
    ['late', (unit) => unit.late, count, 'read ahead, but still on their way'],
    ['wasted', (unit) => unit.wasted_bytes, bytes, 'read for guesses that were wrong'],
    ['precision', (unit) => unit.precision, percent, 'guesses that were needed'],
    ['recall', (unit) => unit.recall, percent, 'needs that were guessed'],
].map(([name, of, show, about]) => ({name, of, show, about}));

function drawUnits() {
    const units = doc.units.map((unit, position) => ({...unit, position}));
    if (!units.length)
        return;
    const kind = (i) => colourOf(units[i].kind);
    const named = (i) => [swatch(kind(i)), unitName(i)];
    const columns = UNIT_COLUMNS.filter((column) => units.some((unit) => known(column.of(unit))));
    const {element, rows} = sortedTable('Units',
        [{name: 'unit', of: (unit) => unit.position, show: named}, ...columns], units, 1);
    const common = {
        n: units.length, ends: [unitName(0), unitName(units.length - 1)],
        describe: (i) => [unitName(i), ...columns.filter((column) => known(column.of(units[i])))
            .map((column) => [column.name, column.show(column.of(units[i]))])],
        choose: (i) => {
            rows.forEach((row, k) => row.classList.toggle('found', k === i));
            rows[i].scrollIntoView({block: 'nearest'});
        },
    };
    const one = (colour, of) => ({colour, of: (i) => of(units[i])});
    const host = $('units');
    strip(host, {...common, title: 'Time', show: seconds, series: [
        one(kind, (unit) => unit.compute_s), one(() => 'wait', (unit) => unit.wait_s)]});
    strip(host, {...common, title: 'Bytes', show: bytes,
        series: [one(kind, (unit) => unit.bytes)]});
    if (units.some((unit) => unit.needs))
        strip(host, {...common, title: 'Hits', show: percent, most: 1,
            series: [one(kind, (unit) => (unit.needs ? unit.hits / unit.needs : 0))]});
    const kinds = [...new Set(units.map((unit) => colourOf(unit.kind)))];
    host.append(legend([...kinds.map((name) => [name, nameOf(name)]), ['wait', 'waiting']]),
        html('div', {class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Units'},
            element));
}

/* ---- what ran, and where ---- */
const SIZES = ['ring', 'pool', 'hints', 'in-flight', 'piece', 'part'];

function showMember(name, value) {
    if (!value && (name === 'ring' || name === 'pool'))
        return 'chosen';
    if (name === 'disk-limit')
        return value ? rate(value) : 'none';
    return name.endsWith('_bytes') || SIZES.includes(name) ? bytes(value) : String(value);
}

function pairs(title, rows) {
    return html('div', {}, html('h3', {}, title), html('table', {}, html('tbody', {},
        ...rows.map(([name, value]) => html('tr', {},
            html('th', {scope: 'row'}, name), html('td', {}, value))))));
}

function memberTable(title, object) {
    const members = Object.entries(object || {}).filter(([, value]) => known(value));
    return members.length ? pairs(title, members.map(([name, value]) =>
        [name.replace(/_bytes$/, '').replaceAll('_', ' '), showMember(name, value)])) : null;
}

function readTable() {
    const {by_class, ...io} = doc.io;
    const rows = [...Object.entries(by_class).map(([name, one]) => ({name, ...one})),
        {name: 'all', bytes: io.bytes_read, reads: io.reads, busy_s: io.busy_s}];
    const cpu = known(io.cpu_s) ? `; the I/O threads took ${seconds(io.cpu_s)} of CPU time` : '';
    const block = known(io.block_bytes) ? `; the block layer read ${bytes(io.block_bytes)}` : '';
    return html('div', {}, html('h3', {}, 'Reads'), plainTable('', [
        {name: 'class', of: (row) => row.name, show: same},
        {name: 'bytes', of: (row) => row.bytes, show: bytes},
        {name: 'reads', of: (row) => row.reads, show: count},
        {name: 'disk busy', of: (row) => row.busy_s, show: seconds},
    ], rows), html('p', {class: 'quiet'}, `${rate(io.bandwidth || 0)} while the disk was busy,`
        + ` ${seconds(io.overlap_s)} of that time something was computed${cpu}${block}.`));
}

function memoryTable(title, terms, all) {
    const rows = Object.entries(terms || {}).filter(([, value]) => value > 0);
    return rows.length ? html('div', {}, html('h3', {}, title), html('table', {}, html('tbody', {},
        ...rows.map(([name, value]) => html('tr', {}, html('th', {scope: 'row'}, name),
            html('td', {}, bytes(value)),
            html('td', {class: 'wide'}, stack([['disk', name, value]], all, bytes))))))) : null;
}

function drawSetup() {
    const {limit, terms, weights} = doc.budget || {};
    const split = {};
    for (const name of ['pinned', 'ring', 'pool', 'rows', 'io'])
        split[name] = (weights || {})[name];
    $('setup').append(...[
        memoryTable('Memory', terms, limit || sum(Object.values(terms || {}), (value) => value)),
        memoryTable('Of weights and I/O', split, sum(Object.values(split), (value) => value)),
        memberTable('Options of the stream', doc.options), memberTable('Machine', doc.machine),
        readTable(),
    ].filter(Boolean));
}

drawHead();
drawTimelineSection();
drawTime();
drawBound();
drawRun();
drawUnits();
drawSetup();
