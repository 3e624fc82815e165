// A hook for React: the current entities of a type, as a map that is replaced with each message.
//
//   const client = connect(new URL("/live/ws", location.href)); // once, beside the components
//   const orders = useLiveMap(client, "order");
//   return [...orders].map(([key, order]) => <li key={key}>{order.total}</li>);
import { useMemo, useSyncExternalStore } from "react";

const NOTHING = new Map();

export function useLiveMap(client, entityType) {
  const store = useMemo(() => {
    let map = null;
    return {
      // StrictMode mounts, unmounts and mounts again: what is opened here is closed by what is returned.
      subscribe(changed) {
        const mine = client.liveMap(entityType);
        const leave = mine.subscribe(changed);
        map = mine;
        return () => {
          leave();
          mine.close();
          if (map === mine) map = null;
        };
      },
      snapshot: () => map?.snapshot() ?? NOTHING,
    };
  }, [client, entityType]);
  return useSyncExternalStore(store.subscribe, store.snapshot, store.snapshot);
}
