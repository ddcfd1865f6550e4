"""Pages of jobs' tasks: `server` passes requests on to them, `page_origin` says at which host and to whom, `past_boards` runs
TensorBoard of jobs that have ended."""
