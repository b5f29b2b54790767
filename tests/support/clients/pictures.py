"""Pictures of the console for its documentation, as the journeys take them: `make pictures`, and no other run.

Times, ports, sizes of the disk and curves, which differ from run to run, are set to fixed values first, so that a
picture changes with its page alone.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

from selenium.webdriver import Chrome

from tests.support.waiting import eventually

#: Where pictures go; none are taken without it.
FOLDER = os.environ.get("CONSOLE_PICTURES", "")
MAX_BYTES = 150_000
COLORS = 128
_FIXED = r"""
const texts = [
  [/\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?/g, "2026-01-01 12:00:00"],
  [/as of [\d,]+ s ago/g, "as of 2 s ago"],
  [/127\.0\.0\.1:\d+/g, "broker1:9092"],
  [/[\d.,]+ (GB|GiB|TB|TiB)/g, "80.0 $1"],
  [/^[\d.,]+\/s$/, "1,003/s"],
  [/^[\d.,]+ [KM]?i?B\/s$/, "0.9 MB/s"],
];
let count = 0;
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  let text = walker.currentNode.nodeValue;
  for (const [found, fixed] of texts) text = text.replace(found, fixed);
  if (text !== walker.currentNode.nodeValue) { walker.currentNode.nodeValue = text; count++; }
}
const noon = Date.UTC(2026, 0, 1, 12);
const curves = {"records/s": i => 1000 + 60 * Math.sin(i / 9), "MB/s": i => 0.9 + 0.08 * Math.cos(i / 9)};
for (const each of document.querySelectorAll(".nicegui-echart")) {
  const chart = getElement(Number(each.id.slice(1))).chart;
  if (chart.getOption().series[0].data[0]?.[0] === noon) continue;
  count++;
  const series = chart.getOption().series.map(({name}) => {
    const curve = curves[name] || (i => 32 - (i < 60 ? i / 3 : 0));
    return {data: [...Array(120).keys()].map(i => [noon + i * 5000, curve(i)])};
  });
  chart.setOption({series, useUTC: true});
}
const style = document.createElement("style");
style.textContent = "::-webkit-scrollbar { display: none }";
document.head.append(style);
for (const each of document.querySelectorAll(".q-notification")) each.remove();
document.activeElement.blur();
return count;
"""


def picture(driver: Chrome, name: str) -> None:
    """Take one of the page as it is now, where pictures are taken."""
    if not FOLDER:
        return

    def is_loaded() -> bool:
        return bool(
            driver.execute_script("return document.fonts.status === 'loaded' && !document.querySelector('.q-loading')")
        )

    eventually(is_loaded, "letters and icons are there")

    def taken() -> bytes:
        driver.execute_script(_FIXED)
        found = driver.get_screenshot_as_png()
        # If the console has sent an update meanwhile, its values have to be fixed again.
        return found if driver.execute_script(_FIXED) == 0 else b""

    data = _small(eventually(taken, f"a picture of {name}"))
    assert len(data) <= MAX_BYTES, f"{name}.png has {len(data)} bytes"
    Path(FOLDER, f"{name}.png").write_bytes(data)


def _small(png: bytes) -> bytes:
    """The picture with a palette, which is smaller: pages have few colors."""
    from PIL import Image

    with Image.open(io.BytesIO(png)) as image:
        few = image.convert("RGB").quantize(COLORS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    out = io.BytesIO()
    few.save(out, "PNG", optimize=True)
    return out.getvalue()
