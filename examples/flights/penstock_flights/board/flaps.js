// @ts-check
/** Lines of split flaps: each letter turns through a few others until it is right. */

const LETTERS = " ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:";
const TURNS = 4;
const STEP_MS = 52;
const STAGGER_MS = 14;
const TURNING_MOST = 160; // more at once is no picture, only work

/** @type {Map<HTMLElement, {letters: string[], at: number}>} */
const turning = new Map();
let still = false;

/** Whether letters change without turning: for those who want no motion, and for a pace at which nobody could see it. */
export function setStill(/** @type {boolean} */ value) {
  still = value;
}

/**
 * Makes a line of flaps. It is for the eye alone; what reads pages aloud gets the text beside it.
 *
 * @param {number} length
 * @param {string} [className]
 */
export function flapLine(length, className = "") {
  const line = document.createElement("span");
  line.className = `flaps ${className}`;
  line.setAttribute("aria-hidden", "true");
  for (let place = 0; place < length; place += 1) {
    const flap = document.createElement("i");
    flap.textContent = "\u00a0";
    line.append(flap);
  }
  return line;
}

/**
 * Turns a line to a text.
 *
 * @param {HTMLElement} line
 * @param {string} text
 */
export function turn(line, text) {
  if (line.dataset.text === text) return;
  line.dataset.text = text;
  const letters = text.toUpperCase();
  const now = performance.now();
  const flaps = /** @type {HTMLCollectionOf<HTMLElement>} */ (line.children);
  for (let place = 0; place < flaps.length; place += 1) {
    const flap = flaps[place];
    const letter = letters[place] ?? " ";
    if (still || turning.size >= TURNING_MOST) {
      turning.delete(flap);
      put(flap, letter);
    } else if ((flap.textContent === "\u00a0" ? " " : flap.textContent) !== letter) {
      turning.set(flap, { letters: approach(letter), at: now + place * STAGGER_MS });
    } else {
      turning.delete(flap);
    }
  }
}

/** Moves every flap that turns; called once a frame. */
export function step(/** @type {number} */ now) {
  for (const [flap, way] of turning) {
    if (now < way.at) continue;
    put(flap, way.letters.shift() ?? " ");
    flap.animate([{ transform: "scaleY(0.35)", filter: "brightness(0.7)" }, { transform: "none", filter: "none" }], {
      duration: STEP_MS,
      easing: "ease-out",
    });
    way.at = now + STEP_MS;
    if (way.letters.length === 0) turning.delete(flap);
  }
}

/** @param {HTMLElement} flap @param {string} letter */
function put(flap, letter) {
  flap.textContent = letter === " " ? "\u00a0" : letter;
}

/** The last few letters of the drum before the one that is wanted. */
function approach(/** @type {string} */ letter) {
  const at = LETTERS.indexOf(letter);
  if (at < 0) return [letter];
  return Array.from({ length: TURNS }, (_, turn) => LETTERS.at((at - TURNS + 1 + turn) % LETTERS.length) ?? letter);
}
