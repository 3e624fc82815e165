// Makes subscriptions of npm graphql-ws exact over restarts of the server, also those of Apollo, urql and Relay.
// Copy it: it depends on nothing.

// The options of a client that waits for a server. By itself it gives up at the first connection that is refused.
// A function as `connectionParams` is asked for the token of each connection.
export function patient(options) {
  let accepted = false; // whether the server has acknowledged a connection since it refused one
  return {
    retryAttempts: Infinity,
    keepAlive: 5000, // after so many milliseconds without a message the server is pinged
    connectionAckWaitTimeout: 10_000,
    // A token that has expired (4403) is asked for anew, once; a refused one stays wrong, and what `next` has thrown it would throw again.
    shouldRetry: (lost) => (lost.code === 4403 ? accepted : lost.code ? true : !(lost instanceof Error)),
    // 0.1 s to 5 s, by chance, so that not all clients come back at the same moment
    retryWait: (tries) =>
      new Promise((done) => setTimeout(done, Math.min(5000, 200 * 2 ** tries) * (0.5 + Math.random() / 2))),
    ...options,
    on: {
      ...options.on,
      connected(...told) {
        accepted = true;
        options.on?.connected?.(...told);
      },
      connecting(...told) {
        accepted = false;
        options.on?.connecting?.(...told);
      },
    },
  };
}

// The client repeats the payload of a subscription on each new connection. Libraries hand it variables that are
// copies, so the place to go on from is kept here, in the payload that the client holds.
export function resuming(client) {
  let unanswered;
  client.on("ping", (received) => {
    if (!received) unanswered = setTimeout(() => client.terminate(), 5000); // half open: nobody is there any more
  });
  for (const name of ["pong", "message", "closed"]) client.on(name, () => clearTimeout(unanswered));
  return {
    ...client,
    subscribe(payload, sink) {
      if (!/\bsubscription\b/.test(payload.query)) return client.subscribe(payload, sink);
      const variables = { ...payload.variables };
      if (!/\$since\b/.test(payload.query) || !variables.since)
        throw new Error("pass a cursor as the variable $since, such as that of { logs { head } }");
      return client.subscribe({ ...payload, variables }, {
        next(result) {
          sink.next(result);
          if (!result.data) return;
          const [change] = Object.values(result.data);
          if (!change.cursor) throw new Error("select the cursor of each change");
          variables.since = change.cursor; // it was handled
        },
        error: (reason) => sink.error(reason),
        complete: () => sink.complete(),
      });
    },
    iterate() {
      throw new Error("use subscribe, which tells when a change was handled");
    },
  };
}
