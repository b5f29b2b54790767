"""One micro-batch as any sink sees it: who its tasks are, what Spark planned of it, and where tasks stage rows."""
