#!/bin/sh
# An agent for crowds: answers every message with the frames in $CHAOS_FRAMES, as fast as a shell can. Light, so that
# hundreds run at once.
session=$(cat /proc/sys/kernel/random/uuid)
[ "$1" = --version ] && echo "2.1.332 (crowd)" && exit
while IFS= read -r line; do
    case $line in
        *'"control_request"'*)
            id=${line#*'"request_id":"'}
            id=${id%%'"'*}
            printf '{"type":"control_response","response":{"subtype":"success","request_id":"%s","response":{}}}\n' "$id"
            ;;
        *'"type":"user"'*)
            uuid=${line#*'"uuid":"'}
            uuid=${uuid%%'"'*}
            : >"$CHAOS_LOG/$UNTETHER_PROCESS.began"
            until [ -e "$CHAOS_LOG/go" ]; do sleep 4; done
            sed "s/@UUID@/$uuid/g; s/@SESSION@/$session/g" "$CHAOS_FRAMES"
            ;;
    esac
done
