"""The least that a submission over HTTP can cost: ``python -m bench.empty PORT`` until ended.

An endpoint of FastAPI with the model of ``POST /jobs`` that does nothing, under the server and the event loop
of the API.
"""

import sys

import uvicorn
from fastapi import FastAPI

from taskq_api.schemas import JobRequest


def main(port: int) -> None:
    app = FastAPI()

    @app.post("/jobs", status_code=201)
    async def submit(job: JobRequest) -> dict[str, str]:
        return {"job_type": job.job_type}

    uvicorn.run(
        app,
        host="127.0.0.1",
        port=port,
        loop="uvloop",
        http="httptools",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
