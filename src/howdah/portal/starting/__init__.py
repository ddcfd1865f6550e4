"""Jobs and notebooks that are started from a portal of one's own: `commands` runs what starts them, `notebooks` has their page."""
