import "@/styles/tokens.css";
import "@/styles/base.css";
import "@/styles/shell.css";
import "@/styles/parts.css";
import "@/styles/pages.css";

import { QueryClientProvider } from "@tanstack/react-query";
import { Tooltip } from "radix-ui";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { RouterProvider } from "react-router";

import { makeQueryClient } from "@/api/queries";
import { followEvents } from "@/api/stream";
import { followTheme } from "@/lib/settings";
import { makeRouter } from "@/routes";
import { Toasts } from "@/ui/toast";

followTheme();
const client = makeQueryClient();
followEvents(client);

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <QueryClientProvider client={client}>
      <Tooltip.Provider delayDuration={350}>
        <RouterProvider router={makeRouter()} />
        <Toasts />
      </Tooltip.Provider>
    </QueryClientProvider>
  </StrictMode>,
);
