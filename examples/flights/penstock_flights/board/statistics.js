// @ts-check
/** What the board reads from the statistics of its server. */

/** Statistics without the logs that have ended by themselves, of which they tell no more than that.
 * @param {any} statistics */
export function served(statistics) {
  const logs = Object.entries(statistics.logs).filter(([_, log]) => log.failure === undefined);
  return { ...statistics, logs: Object.fromEntries(logs) };
}

/** @param {any} log @param {object[]} criteria */
export function ownPublisher(log, criteria) {
  const wanted = canonical(criteria);
  return log.publishers.find((/** @type {any} */ one) => canonical(one.criteria) === wanted) ?? null;
}

/** The subscription of this page, as far as it can be told from others.
 * @param {any} publisher @param {import("./penstock.js").Changes} changes */
export function ownSubscription(publisher, changes) {
  const own = publisher?.subscriptions.find((/** @type {any} */ one) => one.position.cursor === changes.received);
  return own ?? (publisher?.subscriptionCount === 1 ? publisher.subscriptions[0] : null);
}

/** What the streaming queries of the server do: rows a second in all, and words for the query that was heard of last.
 * @param {any} statistics
 * @returns {{rate: number, text: string} | null} */
export function streaming(statistics) {
  const queries = Object.entries(statistics?.sparkQueries ?? {});
  if (!queries.length) return null;
  const running = queries.filter(([, query]) => query.state === "RUNNING");
  const rate = running.reduce((sum, [, query]) => sum + query.rate, 0);
  const failed = queries.find(([, query]) => query.state === "FAILED");
  const [name, query] = failed ?? running.at(-1) ?? /** @type {any} */ (queries.at(-1));
  const batch = query.batch === null ? "no batch yet" : `batch ${query.batch}`;
  const behind = query.behind ? `, ${query.behind} versions behind` : "";
  const text = failed ? `${name} failed: ${query.error}` : running.length ? `rows a second, ${batch}${behind}` : `${query.state.toLowerCase()} after ${batch}`;
  return { rate, text };
}

/** @param {{version: number, index: number}} position */
export function placeOf({ version, index }) {
  return index ? version + 0.5 : version;
}

/** @param {object[]} criteria */
function canonical(criteria) {
  return JSON.stringify(criteria.map((one) => Object.entries(one).sort()));
}
