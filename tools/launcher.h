// Runs a job: starts its ranks, passes signals and output on, and ends all processes of the job
// when one rank fails (unless the others should go on), or when the user or the clock ends the job.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace tutti {

struct JobOptions {
  int ranks = 1;
  bool tag = false;                     // prefix lines of output with the rank
  bool bind_cores = false;              // each rank to a core, if there are enough
  bool keep_going = false;              // a rank that fails does not end the others
  std::chrono::nanoseconds timeout{0};  // of the whole job; 0: none
  std::vector<std::string> program;     // and its arguments
};

/// The job's exit status: 0, or what docs and `tutti run --help` say. Reports on standard error.
int run_job(const JobOptions& options);

}  // namespace tutti
