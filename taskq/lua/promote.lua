#!lua flags=allow-oom
-- promote: scheduled | retrying -> queued
-- Moves what is due to its line. Also done by every claim, so no scheduler process is needed.
-- KEYS   prefix       <namespace>:{queue}:
-- ARGV   now          ms      '' for the server's clock
-- ARGV   limit        int     jobs of each set at most
-- REPLY  moved, next due in ms or ''
-- @include _clock _config _stats _bulk _history _lines _job _later _promote
local due, moved = promote(limit)
prune_later()
flush_stats()
return { moved, due and exact(due) or '' }
