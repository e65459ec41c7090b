/** What this browser's key may do. What it may not is left out, and a word in the bar says so. */
import { useQuery } from "@tanstack/react-query";

import { get } from "./client";
import type { Scope, Self } from "./types";

const KEPT_MS = 60_000;

export function useSelf() {
  return useQuery({
    queryKey: ["self"],
    queryFn: ({ signal }) => get<Self>("/keys/self", {}, signal),
    staleTime: KEPT_MS,
  });
}

/** Whether something can be done. Until the API has said so everything can: it refuses what cannot. */
export function useMay(): (scope: Scope) => boolean {
  const { data } = useSelf();
  return (scope) => data === undefined || data.scopes.includes(scope);
}
