'use strict';
/* What the page is made of: numbers as text, elements, tips, bars, tables, strips of columns.
 * Strings reach the page as text nodes and attributes, never as markup. */

/* ---- text: sizes and times as the program prints them (runtime/report.c) ---- */
const GAP = '\u00a0';

function bytes(n) {
    const names = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];
    let u = 0;
    while (n >= 1023.95 && u < 6) {
        n /= 1024;
        u++;
    }
    const digits = u === 0 || n >= 99.95 ? 0 : u >= 3 && n < 9.995 ? 2 : 1;
    return n.toFixed(digits) + GAP + names[u];
}

function seconds(s) {
    if (s < 0.5e-8)
        return '0' + GAP + 's';
    if (s < 0.000995)
        return (s * 1e6).toFixed(s < 9.95e-6 ? 2 : s < 99.5e-6 ? 1 : 0) + GAP + 'µs';
    if (s < 0.0995)
        return (s * 1e3).toFixed(s < 0.00995 ? 2 : 1) + GAP + 'ms';
    if (s < 99.5)
        return s.toFixed(s < 9.95 ? 2 : 1) + GAP + 's';
    const n = Math.round(s < 5970 ? s : s / 60);
    const [large, small] = s < 5970 ? ['min', 's'] : ['h', 'min'];
    return `${Math.floor(n / 60)}${GAP}${large} ${String(n % 60).padStart(2, '0')}${GAP}${small}`;
}

const rate = (bytesPerSecond) => bytes(bytesPerSecond) + '/s';
const moment = (s) => s.toFixed(6) + GAP + 's';
const speed = (n) => n.toFixed(n < 9.995 ? 2 : n < 99.95 ? 1 : 0);
const count = (n) => String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, '\u202f');
const percent = (share) => (share * 100).toFixed(share > 0 && share < 0.0995 ? 1 : 0) + GAP + '%';
const same = (text) => text;
const sum = (list, of) => list.reduce((all, item) => all + (of(item) || 0), 0);
const known = (value) => value !== null && value !== undefined;

/* ---- elements ---- */
const $ = (id) => document.getElementById(id);

/* A child that is null is left out, an attribute too. */
function build(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
        if (name === 'style')
            Object.assign(element.style, value);
        else if (value !== null)
            element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== null));
    return element;
}
const html = (tag, attributes, ...children) =>
    build(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
    build(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);

const paint = (colour) => `var(--${colour})`;
const swatch = (colour) => html('span', {class: 'swatch', style: {background: paint(colour)}});
const legend = (items) => html('div', {class: 'legend'},
    ...items.map(([colour, name]) => html('span', {}, swatch(colour), name)));

/* x, y: where the pointer is. Lines: a title, then [what, value]. */
function showTip(x, y, [title, ...lines]) {
    const tip = $('tip');
    tip.replaceChildren(html('b', {}, title),
        ...lines.map(([what, value]) => html('div', {}, `${what} ${value}`)));
    tip.hidden = false;
    const {width, height} = tip.getBoundingClientRect();
    const {clientWidth, clientHeight} = document.documentElement;
    const left = x + 14 + width < clientWidth ? x + 14 : Math.max(4, x - 14 - width);
    const top = y + 14 + height < clientHeight ? y + 14 : Math.max(4, y - 14 - height);
    tip.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
}

function hideTip() {
    $('tip').hidden = true;
}
addEventListener('scroll', hideTip, {capture: true, passive: true});

/* A mouse takes its tip along when it goes; a finger leaves it to be read. */
function onLeave(element, tidy) {
    element.addEventListener('pointerleave', (event) => {
        if (event.pointerType === 'touch')
            return;
        hideTip();
        tidy();
    });
}

/* ---- bars ---- */
/* Parts: [colour, name, amount]. all: what the full width stands for; limit: a mark, or 0. */
function stack(parts, all, show, limit = 0) {
    const piece = ([colour, name, amount]) => html('span', {
        style: {background: paint(colour), width: `${(100 * amount) / all}%`},
        title: `${name}: ${show(amount)}, ${percent(amount / all)}`,
    });
    const mark = html('div', {class: 'limit', style: {left: `${(100 * limit) / all}%`}});
    return html('div', {class: 'track', 'aria-hidden': 'true'},
        html('div', {class: 'stack'}, ...parts.filter(([, , amount]) => amount > 0).map(piece)),
        limit > 0 ? mark : null);
}

/* ---- tables ---- */
/* Columns: {name, of(row), show(value), about}; show gives a text or a list of nodes. A value that
 * is not known leaves its cell empty. */
function cells(columns, row) {
    return columns.map((column) => {
        const value = column.of(row);
        return html('td', {}, ...(known(value) ? [].concat(column.show(value)) : []));
    });
}

function plainTable(caption, columns, rows) {
    return html('table', {}, caption ? html('caption', {}, caption) : null,
        html('thead', {}, html('tr', {},
            ...columns.map((column) => html('th', {scope: 'col'}, column.name)))),
        html('tbody', {}, ...rows.map((row) => html('tr', {}, ...cells(columns, row)))));
}

/* The heads are buttons that sort; first: the column by which it is sorted now. Returns the table,
 * and its rows' elements in the order of rows. */
function sortedTable(caption, columns, rows, first) {
    const elements = rows.map((row) => html('tr', {}, ...cells(columns, row)));
    const body = html('tbody', {});
    const heads = columns.map((column) => html('th', {scope: 'col', title: column.about || null},
        html('button', {type: 'button'}, column.name)));
    const sort = (c, down) => {
        const keys = rows.map((row) => columns[c].of(row));
        const order = keys.map((_, i) => i).sort((a, b) => {
            if (!known(keys[a]) || !known(keys[b]))
                return known(keys[b]) - known(keys[a]) || a - b;
            const way = keys[a] < keys[b] ? -1 : keys[a] > keys[b] ? 1 : 0;
            return (down ? -way : way) || a - b;
        });
        heads.forEach((th) => th.removeAttribute('aria-sort'));
        heads[c].setAttribute('aria-sort', down ? 'descending' : 'ascending');
        body.replaceChildren(...order.map((i) => elements[i]));
    };
    heads.forEach((th, c) => th.firstChild.addEventListener('click',
        () => sort(c, th.getAttribute('aria-sort') !== 'descending')));
    sort(first, true);
    const element = html('table', {}, html('caption', {class: 'unseen'}, caption),
        html('thead', {}, html('tr', {}, ...heads)), body);
    return {element, rows: elements};
}

/* ---- strips of columns ---- */
const STRIP_HEIGHT = 84;

/* The least 1, 2 or 5 times a power of 10 that is not below x. */
function roundUp(x) {
    const power = 10 ** Math.floor(Math.log10(x));
    return [1, 2, 5].map((step) => step * power).find((step) => step >= x * 0.999999) || 10 * power;
}

/* One path per colour: thousands of columns stay a handful of elements. */
function columnPaths(o, step, y) {
    const paths = new Map();
    const gap = step > 4 ? 1 : 0;
    for (let i = 0; i < o.n; i++) {
        let below = 0;
        for (const series of o.series) {
            const value = series.of(i) || 0;
            const colour = series.colour(i);
            const [x, low, high] = [i * step, y(below), y(below + value)].map((v) => v.toFixed(2));
            if (value > 0)
                paths.set(colour, `${paths.get(colour) || ''}M${x} ${low}V${high}h`
                    + `${(step - gap).toFixed(2)}V${low}z`);
            below += value;
        }
    }
    return Array.from(paths, ([colour, d]) => svg('path', {d, style: {fill: paint(colour)}}));
}

function drawStrip(figure, o) {
    const width = Math.max(200, figure.clientWidth);
    const step = width / o.n;
    let most = o.most || 0;
    for (let i = 0; !o.most && i < o.n; i++)
        most = Math.max(most, o.limit || 0, sum(o.series, (series) => series.of(i)));
    most = most || 1;
    const y = (value) => STRIP_HEIGHT * (1 - Math.min(value, most) / most);
    const here = svg('rect', {class: 'here', width: Math.max(1, step), height: STRIP_HEIGHT,
        visibility: 'hidden'});
    const grid = [0, 0.5, 1].map((share) => svg('line',
        {class: 'grid', x1: 0, x2: width, y1: y(share * most), y2: y(share * most)}));
    const limit = svg('path', {class: 'limit-line', d: `M0 ${y(o.limit || 0)}H${width}`});
    const picture = svg('svg', {viewBox: `0 0 ${width} ${STRIP_HEIGHT}`, height: STRIP_HEIGHT,
        role: 'img', 'aria-label': `${o.title}: a chart of the table below`},
        ...grid, ...columnPaths(o, step, y), o.limit ? limit : null, here);
    listenStrip(picture, here, o);
    figure.replaceChildren(html('figcaption', {}, html('b', {}, o.title),
        ` up to ${o.show(most)} ${o.more || ''}`), picture,
    html('div', {class: 'ends'}, ...o.ends.map((end) => html('span', {}, end))));
}

function listenStrip(picture, here, o) {
    const column = (event) => {
        const box = picture.getBoundingClientRect();
        const share = (event.clientX - box.left) / box.width;
        return Math.max(0, Math.min(o.n - 1, Math.floor(share * o.n)));
    };
    const point = (event) => {
        here.setAttribute('x', column(event) * here.getAttribute('width'));
        here.setAttribute('visibility', 'visible');
        showTip(event.clientX, event.clientY, o.describe(column(event)));
    };
    picture.addEventListener('pointermove', point);
    picture.addEventListener('pointerdown', point);
    onLeave(picture, () => here.setAttribute('visibility', 'hidden'));
    picture.addEventListener('click', (event) => o.choose(column(event)));
}

/* A strip of o.n columns under each other's series: {title, more, n, series: [{colour(i), of(i)}],
 * limit: a line or nothing, most: of the scale, ends: texts, show(value), describe(i): a tip,
 * choose(i)}. */
function strip(host, o) {
    const figure = html('figure', {});
    host.append(figure);
    drawStrip(figure, o);
    new ResizeObserver(() => drawStrip(figure, o)).observe(figure);
}
