"""One topic under another key for another application, and one enriched from two others. The page: rekeyed.md."""
