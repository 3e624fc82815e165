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

/** @param {{version: number, index: number}} position */
export function placeOf({ version, index }) {
  return index ? version + 0.5 : version;
}

/** @param {object[]} criteria */
function canonical(criteria) {
  return JSON.stringify(criteria.map((one) => Object.entries(one).sort()));
}
