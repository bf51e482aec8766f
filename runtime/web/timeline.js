/* The timeline: events in lanes over time, drawn on a canvas. Where there are more events than
 * pixels, a lane shows for each pixel which share of its time they take; nothing is left out. */

const RULER = 24, TITLE = 17, BETWEEN = 8;
const SHORTEST = 5e-6; /* seconds in view at the least */

const timeline = {
    lanes: [], passes: [], all: {from: 0, to: 1}, first: {from: 0, to: 1}, view: {from: 0, to: 1},
    width: 0, height: 0, hover: null, marked: null, pending: false,
};

/* ---- events ---- */
/* o: {name, title, more, height, events: arrays, the start first, end(event), colour(event),
 * tip(event), and perhaps label(event), size(event): bytes, part(event): what is marked together,
 * deep: they overlap, and each gets the first free row, overview: which way its shares grow}. */
function makeLane(o) {
    const events = [...o.events].sort((a, b) => a[0] - b[0]);
    const lane = {...o, events, start: Float64Array.from(events, (event) => event[0]),
        end: Float64Array.from(events, o.end), colours: [...new Set(events.map(o.colour))],
        row: new Uint16Array(events.length), depth: 1, longest: 0};
    lane.group = Uint8Array.from(events, (event) => lane.colours.indexOf(o.colour(event)));
    const free = []; /* by row: when its last event ends */
    for (let i = 0; i < events.length; i++) {
        let row = 0;
        while (o.deep && row < free.length && free[row] > lane.start[i])
            row++;
        free[row] = lane.end[i];
        lane.row[i] = row;
        lane.longest = Math.max(lane.longest, lane.end[i] - lane.start[i]);
    }
    lane.depth = Math.max(1, free.length);
    lane.height = o.deep ? Math.max(14, Math.min(56, lane.depth * 8)) : o.height;
    return lane;
}

/* The first index whose value is not below t. */
function lowerBound(values, t) {
    let low = 0, high = values.length;
    while (low < high) {
        const middle = (low + high) >> 1;
        if (values[middle] < t)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Calls visit(i) for each event that touches [from, to]. */
function eachEvent(lane, from, to, visit) {
    const last = lowerBound(lane.start, to);
    for (let i = lowerBound(lane.start, from - lane.longest); i < last; i++)
        if (lane.end[i] >= from)
            visit(i);
}

/* What a lane's events take of [from, to]: seconds, and bytes in proportion. */
function measureLane(lane, from, to) {
    let time = 0, read = 0, n = 0;
    eachEvent(lane, from, to, (i) => {
        const part = Math.min(lane.end[i], to) - Math.max(lane.start[i], from);
        const whole = lane.end[i] - lane.start[i];
        time += part;
        n++;
        if (lane.size)
            read += lane.size(lane.events[i]) * (whole > 0 ? part / whole : 1);
    });
    return {time, read, n};
}

/* ---- drawing ---- */
let palette = {};

function readPalette() {
    const style = getComputedStyle(document.documentElement);
    palette = new Proxy({}, {get: (_, name) => style.getPropertyValue(`--${name}`)});
}

/* A canvas of the element's size in device pixels; coordinates are CSS pixels. */
function context(canvas, width, height) {
    const dpr = devicePixelRatio || 1;
    canvas.width = Math.round(width * dpr);
    canvas.height = Math.round(height * dpr);
    const ctx = canvas.getContext('2d');
    ctx.scale(dpr, dpr);
    ctx.font = '11px system-ui, "Liberation Sans", sans-serif';
    ctx.textBaseline = 'middle';
    return ctx;
}

/* For each pixel the share of its time, or the mean number of events when they overlap, as columns
 * from the bottom (step -1) or hanging from the top (1). */
function drawShares(ctx, lane, view, width, y, height, step) {
    const rowHeight = height / lane.depth;
    const scale = width / (view.to - view.from);
    const columns = lane.colours.map(() => new Float32Array(width + 2));
    eachEvent(lane, view.from, view.to, (i) => {
        const left = Math.max(0, (lane.start[i] - view.from) * scale);
        const right = Math.min(width, (lane.end[i] - view.from) * scale);
        const column = columns[lane.group[i]];
        const first = Math.floor(left), last = Math.floor(right);
        if (first === last) {
            column[first] += right - left;
            return;
        }
        column[first] += first + 1 - left;
        for (let x = first + 1; x < last; x++)
            column[x]++;
        column[last] += right - last;
    });
    const below = new Float32Array(width + 2);
    const base = step < 0 ? y + height : y;
    columns.forEach((column, group) => {
        ctx.fillStyle = palette[lane.colours[group]];
        for (let x = 0; x < width; x++) {
            const tall = column[x] * rowHeight;
            if (tall > 0)
                ctx.fillRect(x, base + step * below[x], 1, step * tall);
            below[x] += tall;
        }
    });
}

function drawLabel(ctx, text, x, y, width) {
    const fits = Math.floor((width - 8) / 6);
    if (fits >= Math.min(10, text.length))
        ctx.fillText(text.length > fits ? text.slice(0, fits - 1) + '…' : text, x + 4, y);
}

/* Black or white, whichever is read more easily on the colour (#rrggbb). */
function inkOn(colour) {
    const [r, g, b] = [1, 3, 5].map((i) => parseInt(colour.trim().slice(i, i + 2), 16) / 255);
    return 0.2126 * r ** 2.2 + 0.7152 * g ** 2.2 + 0.0722 * b ** 2.2 > 0.18 ? '#000' : '#fff';
}

function drawBars(ctx, lane, view, width) {
    const scale = width / (view.to - view.from);
    const rowHeight = lane.height / lane.depth;
    const gap = rowHeight > 4 ? 1 : 0;
    lane.colours.forEach((name, group) => {
        const colour = palette[name], ink = inkOn(colour);
        eachEvent(lane, view.from, view.to, (i) => {
            if (lane.group[i] !== group)
                return;
            const left = Math.max(-9, (lane.start[i] - view.from) * scale);
            const right = Math.min(width + 9, (lane.end[i] - view.from) * scale);
            const wide = Math.max(0.7, right - left - (right - left > 3 ? 1 : 0));
            const y = Math.round(lane.y + lane.row[i] * rowHeight);
            const next = Math.round(lane.y + (lane.row[i] + 1) * rowHeight);
            ctx.fillStyle = colour;
            ctx.fillRect(left, y, wide, Math.max(1, next - y - gap));
            if (lane.label && wide > 26) {
                ctx.fillStyle = ink;
                drawLabel(ctx, lane.label(lane.events[i]), Math.max(0, left),
                    y + rowHeight / 2, right - Math.max(0, left));
            }
        });
    });
}

function drawRuler(ctx, view, width) {
    const span = view.to - view.from;
    const step = roundUp((span * 96) / width);
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    ctx.fillStyle = palette.quiet;
    ctx.textAlign = 'left';
    for (let k = Math.ceil(view.from / step); k * step <= view.to; k++) {
        const x = ((k * step - view.from) * width) / span;
        ctx.fillRect(x, 0, 1, 6);
        ctx.fillText(`${(k * step).toFixed(digits)} s`, x + 4, 9);
    }
}

/* Where passes begin and end, unless there are too many to tell apart. */
function drawBorders(ctx, view, width) {
    const scale = width / (view.to - view.from);
    const seen = timeline.passes.filter(([start, end]) => end >= view.from && start <= view.to);
    ctx.fillStyle = palette.quiet + '90';
    for (const t of seen.length > width / 20 ? [] : seen.flatMap(([start, end]) => [start, end]))
        for (const lane of timeline.lanes)
            ctx.fillRect(Math.round((t - view.from) * scale), lane.y, 1, lane.height);
}

function drawTitle(ctx, lane, view, width) {
    const span = view.to - view.from;
    const {time, read, n} = measureLane(lane, view.from, view.to);
    const right = lane.size ? `${bytes(read)}, ${rate(read / span)}, ${speed(time / span)} at once`
        : percent(time / span);
    ctx.fillStyle = palette.text;
    ctx.textAlign = 'left';
    ctx.fillText(lane.title, 0, lane.y - TITLE / 2 + 1);
    ctx.fillStyle = palette.quiet;
    if (lane.more && width > 640)
        ctx.fillText(lane.more, ctx.measureText(lane.title).width + 8, lane.y - TITLE / 2 + 1);
    ctx.textAlign = 'right';
    ctx.fillText(n ? right : 'nothing here', width, lane.y - TITLE / 2 + 1);
    ctx.textAlign = 'left';
    return {time, read};
}

/* An event of the same part, or the event itself. */
function isMarked(lane, i) {
    const {hover} = timeline;
    if (!hover)
        return false;
    const event = lane.events[i], other = hover.lane.events[hover.i];
    return event === other
        || (lane.part && hover.lane.part && lane.part(event) === hover.lane.part(other));
}

function drawMarks(ctx, lane, view, width) {
    const scale = width / (view.to - view.from);
    const rowHeight = lane.height / lane.depth;
    ctx.strokeStyle = palette.text;
    ctx.lineWidth = 1.5;
    eachEvent(lane, view.from, view.to, (i) => {
        if (!isMarked(lane, i))
            return;
        const left = Math.max(-9, (lane.start[i] - view.from) * scale);
        const right = Math.min(width + 9, (lane.end[i] - view.from) * scale);
        const y = lane.dense ? lane.y : lane.y + lane.row[i] * rowHeight;
        ctx.strokeRect(left, y, Math.max(1, right - left), lane.dense ? lane.height : rowHeight);
    });
}

function drawLanes(ctx, view, width) {
    const shown = {};
    for (const lane of timeline.lanes) {
        const n = lowerBound(lane.start, view.to) - lowerBound(lane.start, view.from);
        lane.dense = n > Math.min(6000, (width * lane.depth) / 3);
        if (lane.title)
            shown[lane.name] = drawTitle(ctx, lane, view, width);
        ctx.fillStyle = palette.panel;
        ctx.fillRect(0, lane.y, width, lane.height);
        if (lane.dense)
            drawShares(ctx, lane, view, width, lane.y, lane.height, lane.deep ? 1 : -1);
        else
            drawBars(ctx, lane, view, width);
    }
    return shown;
}

function drawTimeline() {
    timeline.pending = false;
    const {view, width, height, selection} = timeline;
    const ctx = context($('timeline'), width, height);
    const shown = drawLanes(ctx, view, width);
    drawRuler(ctx, view, width);
    drawBorders(ctx, view, width);
    if (timeline.hover)
        timeline.lanes.forEach((lane) => drawMarks(ctx, lane, view, width));
    if (selection) {
        ctx.fillStyle = palette.focus + '44';
        ctx.fillRect(selection[0], 0, selection[1] - selection[0], height);
    }
    drawWindow();
    sayShown(shown);
}

function redraw() {
    if (!timeline.pending)
        requestAnimationFrame(drawTimeline);
    timeline.pending = true;
}

/* The whole run as shares of compute and waiting, drawn once per size and theme. */
function drawOverview() {
    const canvas = html('canvas', {});
    const ctx = context(canvas, timeline.width, 36);
    ctx.fillStyle = palette.panel;
    ctx.fillRect(0, 0, timeline.width, 36);
    for (const lane of timeline.lanes.filter((one) => one.overview))
        drawShares(ctx, lane, timeline.all, timeline.width, 0, 36, lane.overview);
    timeline.overview = canvas;
}

function drawWindow() {
    const {width, all, view} = timeline;
    const ctx = context($('overview'), width, 36);
    const x = (t) => ((t - all.from) * width) / (all.to - all.from);
    ctx.drawImage(timeline.overview, 0, 0, width, 36);
    ctx.fillStyle = palette.page + 'b0';
    ctx.fillRect(0, 0, x(view.from), 36);
    ctx.fillRect(x(view.to), 0, width, 36);
    ctx.strokeStyle = palette.text;
    ctx.lineWidth = 1.5;
    const wide = Math.max(3, x(view.to) - x(view.from));
    ctx.strokeRect(Math.min(x(view.from), width - 3) + 0.75, 0.75, wide - 1.5, 34.5);
}

function sayShown(shown) {
    const {from, to} = timeline.view;
    const {all} = timeline;
    const share = (name) => percent(shown[name].time / (to - from));
    const read = sum(Object.values(shown), (lane) => lane.read);
    clearTimeout(timeline.say);
    timeline.say = setTimeout(() => {
        $('shown').textContent = `${seconds(to - from)} from ${moment(from)}`
            + ` (of ${seconds(all.to - all.from)}): computing ${share('compute')},`
            + ` waiting ${share('wait')}, read ${bytes(read)}`;
    }, 120);
}

/* ---- what is in view ---- */
/* Returns whether anything changed. */
function setView(from, to) {
    const {all, view} = timeline;
    const span = Math.max(SHORTEST, Math.min(to - from, all.to - all.from));
    const start = Math.max(all.from, Math.min(from + (to - from - span) / 2, all.to - span));
    if (start === view.from && start + span === view.to)
        return false;
    timeline.view = {from: start, to: start + span};
    redraw();
    return true;
}

/* factor < 1 comes closer; at: pixel that stays where it is. */
function zoom(factor, at = timeline.width / 2) {
    const {view, width, all} = timeline;
    const fixed = view.from + ((view.to - view.from) * at) / width;
    const span = Math.max(SHORTEST, Math.min((view.to - view.from) * factor, all.to - all.from));
    const from = fixed - (span * at) / width;
    return setView(from, from + span);
}

function pan(pixels) {
    const {view, width} = timeline;
    const t = (pixels * (view.to - view.from)) / width;
    return setView(view.from + t, view.to + t);
}

function showPass(number) {
    const pass = timeline.passes[Math.max(0, Math.min(number, timeline.passes.length - 1))];
    if (pass) {
        const margin = (pass[1] - pass[0]) * 0.03;
        setView(pass[0] - margin, pass[1] + margin);
    }
}

function stepPass(by) {
    const {view, passes} = timeline;
    const middle = (view.from + view.to) / 2;
    const after = passes.findIndex((pass) => pass[1] > middle);
    showPass((after < 0 ? passes.length : after) + by);
}

/* Brings the next wait, or the one before, to the middle, and says what it is. */
function stepWait(by) {
    const lane = timeline.lanes.find((one) => one.name === 'wait');
    const {hover, view} = timeline;
    const middle = lowerBound(lane.start, (view.from + view.to) / 2);
    const i = (hover && hover.lane === lane ? hover.i : by > 0 ? middle - 1 : middle) + by;
    if (i < 0 || i >= lane.events.length)
        return;
    const half = (view.to - view.from) / 2;
    const centre = (lane.start[i] + lane.end[i]) / 2;
    setView(centre - half, centre + half);
    timeline.hover = {lane, i};
    const box = $('timeline').getBoundingClientRect();
    showTip(box.left + box.width / 2, box.top + lane.y, lane.tip(lane.events[i]));
    redraw();
}

/* ---- pointer and keys ---- */
/* The event under a point of the canvas: {lane, i, others: how many more are there}; or null. */
function eventAt(x, y) {
    const {view, width} = timeline;
    const second = (view.to - view.from) / width;
    const t = view.from + x * second;
    const lane = timeline.lanes.find((one) => y >= one.y - 1 && y <= one.y + one.height);
    if (!lane)
        return null;
    const row = lane.dense ? -1 : Math.floor(((y - lane.y) * lane.depth) / lane.height);
    let best = null, nearest = Infinity, others = -1;
    eachEvent(lane, t - 3 * second, t + 3 * second, (i) => {
        const distance = Math.max(0, lane.start[i] - t, t - lane.end[i]);
        if (row >= 0 && lane.row[i] !== row)
            return;
        others++;
        if (distance <= nearest) {
            nearest = distance;
            best = i;
        }
    });
    return best === null ? null : {lane, i: best, others};
}

function point(event) {
    const box = $('timeline').getBoundingClientRect();
    const found = eventAt(event.clientX - box.left, event.clientY - box.top);
    const before = timeline.hover;
    timeline.hover = found;
    if (found) {
        const lines = found.lane.tip(found.lane.events[found.i]);
        if (found.lane.dense && found.others > 0)
            lines.push([count(found.others), 'more at this place; zoom in to tell them apart']);
        showTip(event.clientX, event.clientY, lines);
    } else {
        hideTip();
    }
    if (found?.i !== before?.i || found?.lane !== before?.lane)
        redraw();
}

function listenPointer(canvas) {
    const down = new Map(); /* pointer -> x */
    let moved = 0;
    const x = (event) => event.clientX - canvas.getBoundingClientRect().left;
    const y = (event) => event.clientY - canvas.getBoundingClientRect().top;
    canvas.addEventListener('pointerdown', (event) => {
        canvas.setPointerCapture(event.pointerId);
        down.set(event.pointerId, x(event));
        moved = 0;
        if (y(event) < RULER)
            timeline.selection = [x(event), x(event)];
        hideTip();
    });
    canvas.addEventListener('pointermove', (event) => {
        canvas.classList.toggle('scale', y(event) < RULER);
        if (!down.size) {
            point(event);
            return;
        }
        const last = down.get(event.pointerId);
        if (last === undefined)
            return;
        moved += Math.abs(x(event) - last);
        down.set(event.pointerId, x(event));
        const other = [...down].find(([id]) => id !== event.pointerId);
        if (timeline.selection) {
            timeline.selection[1] = x(event);
            redraw();
        } else if (other) {
            const apart = Math.abs(last - other[1]), now = Math.abs(x(event) - other[1]);
            if (apart > 8 && now > 8)
                zoom(apart / now, other[1]);
        } else if (moved > 3) {
            canvas.classList.add('dragged');
            pan(last - x(event));
        }
    });
    const up = (event) => {
        down.delete(event.pointerId);
        canvas.classList.remove('dragged');
        const chosen = timeline.selection;
        timeline.selection = null;
        if (chosen && moved > 3) {
            const {view, width} = timeline;
            const [a, b] = chosen.sort((p, q) => p - q)
                .map((pixel) => view.from + (pixel * (view.to - view.from)) / width);
            setView(a, b);
        } else if (event.type === 'pointerup' && moved <= 3) {
            point(event);
        }
        redraw();
    };
    canvas.addEventListener('pointerup', up);
    canvas.addEventListener('pointercancel', up);
    onLeave(canvas, () => {
        timeline.hover = null;
        redraw();
    });
    canvas.addEventListener('wheel', (event) => {
        const lines = event.deltaMode ? 24 : 1;
        const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
        const changed = sideways ? pan((event.deltaX || event.deltaY) * lines)
            : zoom(Math.exp(event.deltaY * lines * 0.002), x(event));
        if (changed) /* otherwise the page scrolls on */
            event.preventDefault();
        hideTip();
    }, {passive: false});
}

function listenOverview(canvas) {
    const move = (event) => {
        if (!event.buttons)
            return;
        const {all, view, width} = timeline;
        const share = (event.clientX - canvas.getBoundingClientRect().left) / width;
        const half = (view.to - view.from) / 2;
        const centre = all.from + share * (all.to - all.from);
        setView(centre - half, centre + half);
    };
    canvas.addEventListener('pointerdown', (event) => {
        canvas.setPointerCapture(event.pointerId);
        move(event);
    });
    canvas.addEventListener('pointermove', move);
}

const ACTIONS = {
    previous: () => stepPass(-1),
    next: () => stepPass(1),
    in: () => zoom(0.5),
    out: () => zoom(2),
    all: () => setView(timeline.all.from, timeline.all.to),
    reset: () => setView(timeline.first.from, timeline.first.to),
    left: () => pan(-timeline.width / 5),
    right: () => pan(timeline.width / 5),
    nextWait: () => stepWait(1),
    previousWait: () => stepWait(-1),
    leave: hideTip,
};
const KEYS = {
    PageUp: 'previous', PageDown: 'next', '+': 'in', '=': 'in', ArrowUp: 'in', '-': 'out',
    ArrowDown: 'out', a: 'all', Home: 'reset', ArrowLeft: 'left', ArrowRight: 'right',
    n: 'nextWait', p: 'previousWait', Escape: 'leave',
};

function listenKeys(canvas) {
    canvas.addEventListener('keydown', (event) => {
        const action = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
        if (!action || event.ctrlKey || event.metaKey || event.altKey)
            return;
        event.preventDefault();
        ACTIONS[action]();
    });
    for (const button of document.querySelectorAll('[data-do]'))
        button.addEventListener('click', () => ACTIONS[button.dataset.do]());
}

/* ---- all of it ---- */
function layOut() {
    let y = RULER;
    for (const lane of timeline.lanes) {
        lane.y = y + (lane.title ? TITLE : 0);
        y = lane.y + lane.height + BETWEEN;
    }
    timeline.height = y;
    $('timeline').style.height = `${y}px`;
}

function resize() {
    const width = Math.floor($('timeline').clientWidth);
    if (!width)
        return;
    timeline.width = width;
    readPalette();
    drawOverview();
    redraw();
}

/* passes: [start, end, kind, rows]; lanes: of makeLane(); first: the view to begin with. */
function startTimeline(lanes, passes, first) {
    const used = lanes.filter((lane) => lane.events.length);
    const from = Math.min(...used.map((lane) => lane.start[0]));
    const to = Math.max(...used.map((lane) => lane.end.reduce((a, b) => Math.max(a, b))));
    timeline.lanes = lanes;
    timeline.passes = passes;
    timeline.all = {from, to: Math.max(from + SHORTEST, to)};
    timeline.first = first || timeline.all;
    layOut();
    resize();
    setView(timeline.first.from, timeline.first.to);
    listenPointer($('timeline'));
    listenOverview($('overview'));
    listenKeys($('timeline'));
    new ResizeObserver(resize).observe($('timeline'));
    const repaint = () => {
        resize();
        drawTimeline(); /* paper waits for no frame */
    };
    for (const media of ['(prefers-color-scheme: dark)', 'print'])
        matchMedia(media).addEventListener('change', repaint);
}
