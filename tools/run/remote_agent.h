// `tutti run-agent`: what `tutti run` starts on the other hosts of a job. Users do not call it.
#pragma once

namespace tutti {

/// Returns the exit status, after an error that it has told.
int run_remote_agent();

}  // namespace tutti
