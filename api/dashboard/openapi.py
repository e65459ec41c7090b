"""Prints the OpenAPI document, which the types of the dashboard are made from."""

import json

from taskq.settings import load_settings
from taskq_api.app import create_app

if __name__ == "__main__":
    print(json.dumps(create_app(load_settings()).openapi(), ensure_ascii=False))
