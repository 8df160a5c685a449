// Schedules as text, to be read, compared with diff, written by hand and kept in files.
// docs/pipeline.md describes the form; an example:
//
//     tutti schedule 1
//     by_hand  ranks 2  stages 2  micro-batches 3  buffers 1  live 2
//     rank 0  stages 0
//       0F0 0F1 0B0 0F2 0B1 0B2
//     rank 1  stages 1
//       1F0 1B0 1F1 1B1 1F2 1B2
//
// Reading a written text gives the same schedule.
#pragma once

#include <string>
#include <string_view>

#include "schedule.h"

namespace tutti::parallel::pipeline {

/// Throws Error(invalid_argument) if the name is not one word of at most 64 letters, digits and _ -
/// . (a reader could not read it), or if a stage is on no rank.
std::string to_text(const Schedule& schedule);

/// Throws Error(invalid_argument), which names the line, the expected text and the actual one. The
/// verifier decides whether the schedule is right.
Schedule schedule_from_text(std::string_view text);

}  // namespace tutti::parallel::pipeline
