/** Whether events come by a stream now; while they do, polling is only a safety net. */
import { store } from "@/lib/store";

export const streaming = store(false);
