/** Runs what changes something, tells how it went, and asks again for what it may have changed. */
import { useQueryClient } from "@tanstack/react-query";
import { useCallback, useState } from "react";

import { ApiError } from "@/api/client";
import { toast } from "@/ui/toast";

export interface Act {
  /** Runs one action; a second one waits for nothing, it is refused while the first runs. */
  (what: () => Promise<unknown>, done: string): Promise<void>;
}

/** `act` tells a refusal in a message; `attempt` raises it, for those who show it themselves. */
export function useAct(): { act: Act; attempt: Act; busy: boolean; refresh: () => Promise<void> } {
  const client = useQueryClient();
  const [busy, setBusy] = useState(false);
  const refresh = useCallback(() => client.invalidateQueries({ refetchType: "active" }), [client]);
  const attempt = useCallback<Act>(
    async (what, done) => {
      setBusy(true);
      try {
        await what();
        toast("good", done);
      } finally {
        setBusy(false);
        void refresh();
      }
    },
    [refresh],
  );
  const act = useCallback<Act>(
    async (what, done) => {
      try {
        await attempt(what, done);
      } catch (error) {
        toast("bad", error instanceof ApiError ? error.message : String(error));
      }
    },
    [attempt],
  );
  return { act, attempt, busy, refresh };
}
