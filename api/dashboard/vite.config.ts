import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

// The built files are committed, so that an installed wheel serves them without Node: the same sources
// must make the same bytes anywhere.
export default defineConfig({
  base: "./",
  plugins: [react()],
  resolve: { alias: { "@": new URL("./src", import.meta.url).pathname } },
  build: {
    outDir: "../taskq_api/static",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 600,
    assetsInlineLimit: 0,
    license: { fileName: "licenses.md" },
  },
  server: {
    proxy: Object.fromEntries(
      [
        "audit", "bulk", "doctor", "errors", "events", "health", "job-types", "jobs", "keys",
        "openapi.json", "queues", "ready", "stats", "workers",
      ].map((name) => [`/${name}`, "http://localhost:8000"]),
    ),
  },
  test: {
    environment: "jsdom",
    include: ["src/**/*.test.{ts,tsx}"],
    setupFiles: ["src/test-setup.ts"],
    testTimeout: 60_000, // the machine may be busy with others
  },
});
