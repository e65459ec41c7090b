/** Every address of the dashboard. The overview is at `/`, all else under `/ui`, beside the API's own paths. */
import { createBrowserRouter, isRouteErrorResponse, useRouteError } from "react-router";

import { basePath } from "@/api/client";
import { Overview } from "@/pages/overview";
import { to } from "@/lib/to";
import { Shell } from "@/shell/shell";
import { ButtonLink } from "@/ui/button";
import { Empty, Trouble } from "@/ui/parts";

function Broken() {
  const error = useRouteError();
  if (isRouteErrorResponse(error) && error.status === 404) return <Missing />;
  return (
    <div className="main">
      <Trouble error={error instanceof Error ? error.message : String(error)} again={() => location.reload()} />
    </div>
  );
}

function Missing() {
  return (
    <Empty icon="search" title="There is no such page">
      <p>The address may be of another version of this dashboard.</p>
      <ButtonLink to={to.overview}>To the overview</ButtonLink>
    </Empty>
  );
}

export function makeRouter() {
  return createBrowserRouter(
    [
      {
        element: <Shell />,
        errorElement: <Broken />,
        HydrateFallback: () => null,
        children: [
          {
            errorElement: <Broken />,
            children: [
              { path: "/", element: <Overview /> },
              { path: "/ui/jobs", lazy: async () => ({ Component: (await import("@/pages/jobs")).Jobs }) },
              { path: "/ui/jobs/:id", lazy: async () => ({ Component: (await import("@/pages/job")).JobPage }) },
              { path: "/ui/queues/:name", lazy: async () => ({ Component: (await import("@/pages/queue")).QueuePage }) },
              { path: "/ui/errors", lazy: async () => ({ Component: (await import("@/pages/errors")).Errors }) },
              { path: "/ui/errors/:fingerprint", lazy: async () => ({ Component: (await import("@/pages/error")).ErrorPage }) },
              { path: "/ui/workers", lazy: async () => ({ Component: (await import("@/pages/workers")).Workers }) },
              { path: "/ui/types", lazy: async () => ({ Component: (await import("@/pages/types")).Types }) },
              { path: "/ui/types/:name", lazy: async () => ({ Component: (await import("@/pages/type")).TypePage }) },
              { path: "/ui/server", lazy: async () => ({ Component: (await import("@/pages/server")).Server }) },
              { path: "/ui/keys", lazy: async () => ({ Component: (await import("@/pages/keys")).Keys }) },
              { path: "/ui/audit", lazy: async () => ({ Component: (await import("@/pages/audit")).Audit }) },
              { path: "*", element: <Missing /> },
            ],
          },
        ],
      },
    ],
    { basename: basePath || "/" },
  );
}
