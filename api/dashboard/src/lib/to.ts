/** Addresses of pages, so that no page spells another's. */
export const to = {
  overview: "/",
  jobs: (filter: { queue?: string; state?: string; job_type?: string } = {}) => {
    const search = new URLSearchParams(Object.entries(filter).filter(([, value]) => value)).toString();
    return search === "" ? "/ui/jobs" : `/ui/jobs?${search}`;
  },
  job: (id: string) => `/ui/jobs/${encodeURIComponent(id)}`,
  queue: (name: string) => `/ui/queues/${encodeURIComponent(name)}`,
  errors: "/ui/errors",
  error: (fingerprint: string, queue: string) => `/ui/errors/${encodeURIComponent(fingerprint)}?queue=${encodeURIComponent(queue)}`,
  workers: "/ui/workers",
  types: "/ui/types",
  type: (name: string) => `/ui/types/${encodeURIComponent(name)}`,
  server: "/ui/server",
  keys: "/ui/keys",
  audit: "/ui/audit",
};

/** Pages that show nothing without the scope `admin`. */
export const FOR_ADMINS: readonly string[] = [to.keys, to.audit];
