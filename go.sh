#!/bin/sh
# Start Untether, or run its tests, where make is missing:  ./go.sh [run [ARGS…] | test [PYTEST ARGS…]]
set -eu
cd "$(dirname "$0")"
what=${1:-run}
[ $# -eq 0 ] || shift
case "$what" in
    run)
        sh tools/setup run
        exec .venv/bin/python -m untether "$@"
        ;;
    test)
        sh tools/setup dev
        exec .venv/bin/python -m pytest -n 2 "$@"
        ;;
    *)
        echo "usage: ./go.sh [run [ARGS…] | test [PYTEST ARGS…]]" >&2
        exit 2
        ;;
esac
