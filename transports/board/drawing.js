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
const LETTER = 7.2; // how wide a letter of a label is, about

/**
 * @typedef {object} Snapshot Places are versions with a fraction, as far into the version as the place is.
 * @property {number} oldest
 * @property {number} head
 * @property {number | null} ringStart
 * @property {number} ringEvents
 * @property {number} ringMost
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
    const scale = (room * (narrow ? 0.72 : 0.8)) / Math.max(1, told.head - from);
    const x = (/** @type {number} */ place) => Math.max(EDGE, EDGE + (place - from) * scale);
    const head = x(told.head);
    this.#box("beyond", EDGE, TRACK, room);
    this.#box("log", from > told.oldest ? 0 : EDGE, TRACK, head - (from > told.oldest ? 0 : EDGE));
    this.#line("watermark", `M${head} ${TRACK - 8}v${THICK + 16}`);
    this.#text("oldestText", EDGE, TRACK + THICK + 20, "start", from > told.oldest || Math.abs(x(cursor) - EDGE) < 48 ? "" : number(told.oldest));
    this.#text("logText", EDGE, TRACK - 8, "start", head - EDGE < 90 || x(cursor) - EDGE < 90 ? "" : "log on disk");
    this.#text("watermarkText", Math.max(head, 64), TRACK + THICK + 20, "middle", `watermark ${number(told.head - 1)}`);
    this.#ring(told, x, head);
    this.#you(told, x, head, width);
  }

  /** @param {Snapshot} told @param {(place: number) => number} x @param {number} head */
  #ring(told, x, head) {
    const start = told.ringStart === null ? head : Math.min(x(told.ringStart), head);
    const left = Math.min(start, head - 6);
    this.#box("ring", left, RING, head - left);
    const text = `ring ${number(told.ringEvents)} of ${number(told.ringMost)}`;
    const place = Math.max(Math.min((left + head) / 2, head), EDGE + (text.length * LETTER) / 2);
    this.#text("ringText", place, RING - 9, "middle", text);
  }

  /** @param {Snapshot} told @param {(place: number) => number} x @param {number} head @param {number} width */
  #you(told, x, head, width) {
    const known = told.cursor !== null;
    const at = known ? Math.min(x(told.cursor ?? 0), head) : head;
    const tip = TRACK + THICK + 4;
    this.#svg.dataset.state = told.state ?? "";
    this.#line("you", known ? `M${at} ${tip}l8 13h-16z` : "");
    // LIVE is served from the ring, across the log; RESYNC reads the log itself.
    this.#line("source", !known ? "" : told.state === "RESYNC" ? `M${at} ${TRACK}v${THICK}` : `M${at} ${RING}V${tip}`);
    const label = "you";
    const clear = Math.abs(at - head) > 84;
    this.#text("youText", at, tip + 27, "middle", known ? label : "");
    this.#parts.watermarkText.classList.toggle("aside", !clear);
    const held = told.here + told.demand;
    const end = clear && at < head ? head - 72 : width - EDGE; // the watermark's label stays free
    const shown = Math.max(0, Math.min(held, DOTS_MOST, Math.floor((end - at - 20) / 8)));
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

const NUMBER = new Intl.NumberFormat("en-US");

/**
 * @param {number} value
 */
export function number(value) {
  return NUMBER.format(value);
}
