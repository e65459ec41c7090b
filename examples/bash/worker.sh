#!/usr/bin/env bash
#
# A whole taskq worker in bash: runs one program for each job of one type.
#
#   ./worker.sh JOB_TYPE COMMAND [ARGUMENT...]
#
# The command gets the job's payload (JSON) on its standard input. What it prints is the result: JSON as it
# is, anything else as a string. An exit status other than 0 makes the job fail, with the end of its standard
# error as the message; it is retried as its `max_attempts` says. Try it, beside `make run`:
#
#   ./worker.sh count_words sh -c 'jq -r .text | wc -w'
#   curl -X POST http://localhost:8000/jobs -H 'Content-Type: application/json' \
#        -d '{"job_type":"count_words","payload":{"text":"to be or not to be"}}'
#
# Needs bash 4, curl and jq (before jq 1.7, integers beyond 2^53 in a payload are rounded). Settings, from the
# environment: TASKQ_URL (http://localhost:8000), TASKQ_API_KEY (none), TASKQ_QUEUE (default), TASKQ_WORKER
# (a name for lists of workers), LEASE_SECONDS (30) and WAIT_SECONDS (20, the longest poll).
#
# SIGTERM or Ctrl-C stops the command and hands its job back, which burns no attempt. If this script dies in any
# other way, its lease runs out and another worker gets the job: jobs run at least once. The command of a script
# that was killed may still be at it then; give it a limit (`timeout 60 COMMAND`) if that would hurt.

set -u -m # -m: a background command is a process group of its own, so that it can be ended with all it started

[ $# -ge 2 ] || { echo "usage: $0 JOB_TYPE COMMAND [ARGUMENT...]" >&2; exit 2; }
for tool in curl jq; do
  command -v "$tool" >/dev/null || { echo "$0 needs $tool" >&2; exit 2; }
done
job_type=$1; shift
url=${TASKQ_URL:-http://localhost:8000}
queue=${TASKQ_QUEUE:-default}
lease_seconds=${LEASE_SECONDS:-30}
beat_seconds=$(( lease_seconds >= 3 ? lease_seconds / 3 : 1 ))
wait_seconds=${WAIT_SECONDS:-20}
name=${TASKQ_WORKER:-$(uname -n | tr -cd 'A-Za-z0-9._-' | cut -c 1-60)-$$}
headers=(-H 'Content-Type: application/json')
[ -z "${TASKQ_API_KEY:-}" ] || headers+=(-H "Authorization: Bearer $TASKQ_API_KEY")

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
stopping=
trap 'stopping=1' TERM INT

say() { echo "$(date +%T) $*" >&2; }
new_key() { od -An -N 16 -t x1 /dev/urandom | tr -d ' \n'; }
end() { kill "-$1" -- "-$2" 2>/dev/null; }

# Waits for a background process, or until somebody asks this script to stop.
await() { while kill -0 "$1" 2>/dev/null && [ -z "$stopping" ]; do wait "$1" 2>/dev/null; done; }
pause() { sleep "$1" & await $!; [ -z "$stopping" ] || end KILL $!; }

# call SECONDS METHOD PATH [HEADER...] <body >answer
# Status 0: done. 1: try again (no answer, 429 or 5xx). 2: refused for good.
call() {
  local seconds=$1 method=$2 path=$3 status; shift 3
  status=$(curl -sS -m "$seconds" -X "$method" "$url$path" "${headers[@]}" "$@" --data-binary @- \
    -o "$folder/answer" -w '%{http_code}' 2>"$folder/curl") || return 1
  cat "$folder/answer"
  case $status in 2??) return 0 ;; 429 | 5??) return 1 ;; *) return 2 ;; esac
}

# The same until it is not worth trying again, with growing pauses: an API that restarts is waited for.
insist() {
  local delay=1 status answer body; body=$(cat)
  while :; do
    answer=$(call "$@" <<<"$body"); status=$?
    [ $status -eq 1 ] || { printf '%s' "$answer"; return $status; }
    [ $delay -lt 8 ] || [ -z "$stopping" ] || return 1
    sleep "$delay"; delay=$(( delay < 8 ? delay * 2 : 8 ))
  done
}

# Prints a lease with a job, or nothing. The key stays the same until there is an answer: so the jobs of an answer
# that got lost are answered again, to whichever API process.
key=$(new_key)
claim() {
  local body poll
  body=$(jq -nc --arg q "$queue" --arg t "$job_type" --arg w "$name" --argjson l "$lease_seconds" \
    --argjson s "$wait_seconds" '{queue: $q, job_types: [$t], worker: $w, lease_seconds: $l, wait: $s}')
  call $(( wait_seconds + 10 )) POST /leases -H "Idempotency-Key: $key" <<<"$body" >"$folder/lease" &
  poll=$!
  await $poll
  # Hanging up is enough: nothing is taken for a client that is gone.
  if [ -n "$stopping" ]; then end KILL $poll; wait $poll 2>/dev/null; return 1; fi
  wait $poll
  case $? in
    0) key=$(new_key) ;;
    1) say "no answer from $url, trying again"; pause "$(( RANDOM % 3 + 1 ))"; return 1 ;;
    *) say "refused: $(cat "$folder/lease")"; key=$(new_key); pause 5; return 1 ;;
  esac
  jq -e '.jobs | length > 0' "$folder/lease" >/dev/null
}

# Renews while the command runs; sets `verdict` when the run has to stop.
beat() {
  local answer
  answer=$(call "$beat_seconds" POST "/leases/$lease/heartbeat" </dev/null)
  case $? in
    0)
      if jq -e --arg id "$id" '.cancel | index($id)' <<<"$answer" >/dev/null; then verdict=cancelled
      elif ! jq -e --arg id "$id" '.held | index($id)' <<<"$answer" >/dev/null; then verdict=lost
      fi ;;
    1) say "no heartbeat: $url does not answer" ;;
    *) verdict=lost ;;
  esac
}

report() { # OUTCOME [MORE MEMBERS]
  insist 10 POST "/leases/$lease/results" >"$folder/report" \
    <<<"{\"results\":[{\"id\":\"$id\",\"fence\":$fence,\"outcome\":\"$1\"${2:+,$2}}]}" ||
    { say "job $id: cannot be reported: $(cat "$folder/report")"; return; }
  say "job $id: $1, now $(jq -r '.results[0] | .state + (.problem // {} | if .code then " (" + .code + ")" else "" end)' "$folder/report")"
}

run() {
  local lease id fence run status verdict='' ended='' next result message
  lease=$(jq -r .id "$folder/lease")
  id=$(jq -r '.jobs[0].id' "$folder/lease")
  fence=$(jq -r '.jobs[0].fence' "$folder/lease")
  jq -c '.jobs[0].payload' "$folder/lease" >"$folder/payload"
  say "job $id: started"
  "$@" <"$folder/payload" >"$folder/out" 2>"$folder/err" &
  run=$!
  next=$(( SECONDS + beat_seconds ))
  while kill -0 $run 2>/dev/null && [ -z "$stopping$verdict" ]; do
    pause 0.1
    if [ $SECONDS -ge $next ]; then beat; next=$(( SECONDS + beat_seconds )); fi
  done
  if kill -0 $run 2>/dev/null; then ended=1; end_softly $run; fi
  wait $run 2>/dev/null; status=$?

  if [ -n "$ended" ] && [ -z "$verdict" ]; then
    say "job $id: handed back"
    insist 5 DELETE "/leases/$lease" </dev/null >/dev/null
  elif [ "$verdict" = lost ]; then
    say "job $id: stopped, it is no longer ours (timed out, or the lease ran out)"
  elif [ "$verdict" = cancelled ]; then
    report released
  elif [ $status -eq 0 ]; then
    if [ "$(jq -s length "$folder/out" 2>/dev/null)" = 1 ]; then result=$(cat "$folder/out")
    else result=$(jq -Rs 'rtrimstr("\n")' "$folder/out"); fi
    report succeeded "\"result\":$result"
  elif [ $status -gt 128 ]; then
    report crashed "\"reason\":\"signal $(( status - 128 ))\""
  else
    message=$(tail -c 2000 "$folder/err" | iconv -c -t UTF-8 2>/dev/null | jq -Rs .)
    report failed "\"error\":{\"type\":\"ExitStatus$status\",\"message\":$message}"
  fi
}

end_softly() {
  local tries=0
  end TERM "$1"
  while kill -0 "$1" 2>/dev/null && [ $tries -lt 20 ]; do sleep 0.1; tries=$(( tries + 1 )); done
  end KILL "$1"
}

say "worker $name: $job_type of queue $queue at $url"
while [ -z "$stopping" ]; do
  if claim; then run "$@"; fi
done
say "worker $name: stopped"
