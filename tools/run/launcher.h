// Runs a job: has its ranks started on all of its hosts, passes signals and output on, and ends all
// processes of the job when one rank fails (unless the others should go on), or when the user or
// the clock ends the job. All decisions are made here; agents (agent.h) carry them out.
#pragma once

#include <chrono>

#include "tools/run/agent_messages.h"
#include "tools/run/elastic_run.h"

namespace tutti {

struct JobOptions {
  JobDescription job;                   // `id` and `size` are filled in
  bool keep_going = false;              // a rank that fails does not end the others
  ElasticLimits elastic;                // it is started again, if the job is elastic
  std::chrono::nanoseconds timeout{0};  // of the whole job; 0: none
};

/// The job's exit status: 0, or what docs and `tutti run --help` say. Reports on standard error.
int run_job(const JobOptions& options);

}  // namespace tutti
