// @ts-check
/** The small drawing: the log with its watermark, the ring above it, and where this page stands with its demand. */

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 148;
const TRACK = 84; // where the log lies
const RING = 46;
const THICK = 16;
const EDGE = 14;
const LEAST = 40; // versions that are in the picture at least
const DOTS_MOST = 24;
const CELLS_MOST = 100;
const CELL_LEAST = 8; // pixels of a version that is drawn by itself
const LETTER = 7.2; // how wide a letter of a label is, about

/**
 * @typedef {object} Snapshot Places are versions with a fraction, as far into the version as the place is.
 * @property {number} oldest
 * @property {number} head
 * @property {number | null} ringStart
 * @property {number} ringEvents
 * @property {number} ringMost
 * @property {number[]} passed Versions of the newest events that this page has, as many as the ring has room for.
 * @property {number | null} cursor
 * @property {"LIVE" | "RESYNC" | null} state
 * @property {number} here Events that have come and are not shown yet.
 * @property {number} demand Events asked for.
 */

export class Drawing {
  #svg;
  #width = 0;
  /** @type {Record<string, SVGElement>} */
  #parts = {};
  /** @type {Snapshot | null} */
  #snapshot = null;

  /** @param {SVGSVGElement} svg */
  constructor(svg) {
    this.#svg = svg;
    const shapes = /** @type {const} */ ({
      beyond: "rect",
      log: "rect",
      passed: "path",
      ring: "rect",
      source: "path",
      watermark: "path",
      you: "path",
      demand: "g",
    });
    for (const [name, tag] of Object.entries(shapes)) this.#parts[name] = this.#add(tag, name);
    for (const name of ["oldestText", "ringText", "watermarkText", "logText", "youText", "demandText"]) {
      this.#parts[name] = this.#add("text", name);
    }
    for (let dot = 0; dot < DOTS_MOST; dot += 1) {
      const circle = document.createElementNS(SVG, "circle");
      circle.setAttribute("r", "2.6");
      this.#parts.demand.append(circle);
    }
    new ResizeObserver(() => this.#draw()).observe(svg);
  }

  /** @param {Snapshot} snapshot */
  show(snapshot) {
    this.#snapshot = snapshot;
    this.#draw();
  }

  #draw() {
    const told = this.#snapshot;
    const width = this.#svg.clientWidth;
    if (told === null || width === 0) return;
    if (width !== this.#width) {
      this.#width = width;
      this.#svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    }
    const cursor = told.cursor ?? told.head;
    const behind = Math.max(0, told.head - Math.min(cursor, told.ringStart ?? cursor));
    const span = Math.max(LEAST, behind * 1.3);
    const from = Math.max(told.oldest, told.head - span);
    const room = width - 2 * EDGE;
    const narrow = width < 520;
    // A fifth of the picture lies beyond the watermark: there is what was asked for and does not exist yet.
    const scale = (room * (narrow ? 0.64 : 0.8)) / Math.max(1, told.head - from);
    const x = (/** @type {number} */ place) => Math.max(EDGE, EDGE + (place - from) * scale);
    const head = x(told.head);
    this.#box("beyond", EDGE, TRACK, room);
    this.#box("log", from > told.oldest ? 0 : EDGE, TRACK, head - (from > told.oldest ? 0 : EDGE));
    this.#line("watermark", `M${head} ${TRACK - 8}v${THICK + 16}`);
    this.#text("oldestText", EDGE, TRACK + THICK + 20, "start", from > told.oldest || Math.abs(x(cursor) - EDGE) < 48 ? "" : number(told.oldest));
    this.#text("logText", EDGE, TRACK - 8, "start", head - EDGE < 90 || x(cursor) - EDGE < 90 ? "" : "log on disk");
    const watermark = `watermark ${number(told.head - 1)}`;
    this.#text("watermarkText", Math.min(head + 8, width - 2 - watermark.length * LETTER), TRACK - 8, "start", watermark);
    this.#ring(told, x, head);
    this.#you(told, x, head, width);
  }

  /**
   * The ring: filled for what a subscriber has still to take, an outline a version for what all have taken.
   *
   * @param {Snapshot} told @param {(place: number) => number} x @param {number} head
   */
  #ring(told, x, head) {
    const start = told.ringStart === null ? head : Math.min(x(told.ringStart), head);
    const end = (told.ringEvents && told.ringStart) || told.head;
    // What has come and is not shown yet was taken, too.
    const here = told.here ? Math.min(CELLS_MOST, Math.max(0, Math.floor(told.head - (told.cursor ?? told.head)))) : 0;
    const passed = [...Array.from({ length: here }, (_, place) => told.head - 1 - place), ...told.passed];
    const taken = told.state === "LIVE" ? passed.filter((version) => version < end && x(version) > EDGE) : [];
    this.#line("passed", cells(taken, x));
    const left = told.ringEvents || !taken.length ? Math.min(start, head - 6) : head;
    this.#box("ring", left, RING, head - left);
    this.#parts.ring.classList.toggle("hollow", told.ringEvents === 0);
    const held = `${number(told.ringEvents)} of ${number(told.ringMost)}`;
    const text = told.ringEvents || !taken.length ? `ring: ${held} events held` : "ring: the newest events, all taken";
    const middle = (Math.min(left, ...taken.map(x)) + head) / 2;
    const room = (text.length * LETTER) / 2;
    this.#text("ringText", Math.min(Math.max(middle, EDGE + room), this.#width - 2 - room), RING - 9, "middle", text);
  }

  /** @param {Snapshot} told @param {(place: number) => number} x @param {number} head @param {number} width */
  #you(told, x, head, width) {
    const known = told.cursor !== null;
    const at = known ? Math.min(x(told.cursor ?? 0), head) : head;
    const tip = TRACK + THICK + 4;
    this.#svg.dataset.state = told.state ?? "";
    this.#line("you", known ? `M${at} ${tip}l8 13h-16z` : "");
    // LIVE is served from the ring, across the log; RESYNC reads the log itself.
    this.#line("source", !known || !told.state ? "" : told.state === "RESYNC" ? `M${at} ${TRACK}v${THICK}` : `M${at} ${RING}V${tip}`);
    this.#text("youText", at, tip + 27, "middle", known ? "you" : "");
    const held = told.here + told.demand;
    const shown = Math.max(0, Math.min(held, DOTS_MOST, Math.floor((width - EDGE - at - 20) / 8)));
    const here = Math.round((shown * told.here) / Math.max(1, held));
    for (const [place, dot] of [...this.#parts.demand.children].entries()) {
      dot.setAttribute("cx", String(at + 20 + place * 8));
      dot.setAttribute("cy", String(tip + 10));
      dot.classList.toggle("here", known && place < here);
      dot.classList.toggle("asked", known && place >= here && place < shown);
    }
    const text = held ? `${number(told.here)} here, ${number(told.demand)} asked for` : "asks for nothing";
    const fits = at + 18 + text.length * LETTER < width - 2;
    this.#text("demandText", fits ? at + 18 : at - 18, tip + 27, fits ? "start" : "end", known ? text : "");
  }

  /** @param {keyof SVGElementTagNameMap} tag @param {string} name */
  #add(tag, name) {
    const element = document.createElementNS(SVG, tag);
    element.setAttribute("class", name.replace("Text", " label"));
    this.#svg.append(element);
    return element;
  }

  /** @param {string} name @param {number} left @param {number} top @param {number} width */
  #box(name, left, top, width) {
    const part = this.#parts[name];
    part.setAttribute("x", String(left));
    part.setAttribute("y", String(top));
    part.setAttribute("width", String(Math.max(0, width)));
    part.setAttribute("height", String(THICK));
    part.setAttribute("rx", "3");
  }

  /** @param {string} name @param {string} path */
  #line(name, path) {
    this.#parts[name].setAttribute("d", path);
  }

  /** @param {string} name @param {number} x @param {number} y @param {string} anchor @param {string} text */
  #text(name, x, y, anchor, text) {
    const part = this.#parts[name];
    part.setAttribute("x", String(x));
    part.setAttribute("y", String(y));
    part.setAttribute("text-anchor", anchor);
    if (part.textContent !== text) part.textContent = text;
  }
}

/** The versions of the newest events that this page has, as many as are drawn. */
export class Passed {
  /** @type {[version: number, events: number][]} The newest first. */
  #versions = [];

  add(/** @type {number} */ version) {
    const newest = this.#versions[0];
    if (newest?.[0] === version) newest[1] += 1;
    else this.#versions.unshift([version, 1]);
    if (this.#versions.length > CELLS_MOST) this.#versions.pop();
  }

  /**
   * The versions of the last so many events, the newest first.
   *
   * @param {number} most
   */
  last(most) {
    const versions = [];
    for (const [version, events] of this.#versions) {
      most -= events;
      if (most < 0) break;
      versions.push(version);
    }
    return versions;
  }

  clear() {
    this.#versions = [];
  }
}

/** A line of how far behind this page was, the last minute or two. */
export class Trend {
  /** @type {number[]} */
  #values = [];
  #path;
  #most;

  /** @param {SVGSVGElement} svg @param {number} most How many values it shows. */
  constructor(svg, most = 90) {
    this.#most = most;
    svg.setAttribute("viewBox", `0 0 ${most} 24`);
    svg.setAttribute("preserveAspectRatio", "none");
    this.#path = document.createElementNS(SVG, "path");
    svg.append(this.#path);
  }

  /** @param {number} value */
  add(value) {
    this.#values.push(value);
    if (this.#values.length > this.#most) this.#values.shift();
    const top = Math.max(1, ...this.#values);
    const from = this.#most - this.#values.length;
    this.#path.setAttribute("d", this.#values.map((one, place) => `${place ? "L" : "M"}${from + place} ${(22 - (20 * one) / top).toFixed(1)}`).join(""));
  }

  clear() {
    this.#values = [];
    this.#path.setAttribute("d", "");
  }
}

/**
 * The outlines of versions, or one around all of them where they are narrow.
 *
 * @param {number[]} versions The newest first.
 * @param {(place: number) => number} x
 */
function cells(versions, x) {
  const [newest] = versions;
  if (newest === undefined) return "";
  const narrow = x(newest + 1) - x(newest) < CELL_LEAST;
  const ranges = narrow ? [[versions.at(-1) ?? newest, newest]] : versions.map((version) => [version, version]);
  return ranges
    .map(([first, last]) => {
      const width = Math.max(1, x(last + 1) - x(first) - 3).toFixed(1);
      return `M${(x(first) + 1.5).toFixed(1)} ${RING + 0.75}h${width}v${THICK - 1.5}h-${width}z`;
    })
    .join("");
}

const NUMBER = new Intl.NumberFormat("en-US");

/**
 * @param {number} value
 */
export function number(value) {
  return NUMBER.format(value);
}
