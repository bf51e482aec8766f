#!/usr/bin/env bash
# What this proves: the page of a profile works in a browser, from disk, wide and narrow (500 pixels are the least that
# Chromium opens here): no errors, the figures are those of the document, the timeline is drawn and follows wheel, pointer and
# keys, tips tell the event that is there, and names that try to be markup stay text.
# test: plain timeout=120
set -u
cd "$(dirname "$0")/.." || exit 2
build=${BUILD:-build/release}
data=${SL_TEST_DATA:-tests/data}
for browser in chromium chromium-browser google-chrome chrome ''; do
    ! command -v "$browser" >/dev/null 2>&1 || break
done
[ -n "$browser" ] || { echo 'skipped: no Chromium here (scripts/setup browser)'; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

open_page() { # PAGE WIDTH: what the page is after its scripts
    timeout -k 5 60 "$browser" --headless=new --no-sandbox --disable-gpu --user-data-dir="$work/browser" \
        --enable-logging=stderr --window-size="$2,900" --virtual-time-budget=20000 --dump-dom "file://$1" 2>"$work/log"
}
look() { # NAME JSON WIDTH
    "$build/tests/runtime_profile_html" "$2" "$work/page.html" || exit 1
    # In front of the page's own scripts, so that no error of theirs is missed.
    sed -e "/^<title>/r $work/script" "$work/page.html" >"$work/tested.html"
    open_page "$work/tested.html" "$3" | sed -n '/<pre id="report">/,/<\/pre>/p' | sed 's/<[^>]*>//g' >"$work/found"
    echo "$1, $3 pixels: $(grep -c '^ok' "$work/found") checks held"
    if ! grep -q '^done' "$work/found" || grep -q '^FAIL' "$work/found" || grep ':CONSOLE' "$work/log"; then
        grep -v '^ok' "$work/found"
        tail -n 5 "$work/log"
        failed=1
    fi
}

{ echo '<script>' && cat tests/profile_page.js && echo '</script>'; } >"$work/script"
demo=$data/profile/demo.json
look demo "$demo" 1280
# Names that would end the element, start one, or close a quoted attribute.
hostile='<\/script><script>owned=1<\/script><img src=x onerror=owned=1>\\"'"'"'\&amp;<!--\\u2028\&#x202e;'
sed -e "s|demo-Q4_K_M.gguf|$hostile|g; s|\"blk\.|\"$hostile|g" "$demo" >"$work/hostile.json"
look hostile "$work/hostile.json" 500
exit $failed
