// A *_perf program, run inside of a test.
#pragma once

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "bench/perf/benchmark.h"
#include "bench/perf/program.h"

namespace tutti::perf {

struct Result {
  int exit_code;
  std::string output;
  std::string errors;
};

inline Result run(Collective collective, const std::string& line) {
  std::istringstream words(line);
  std::vector<std::string> arguments{std::string(program_name(collective))};
  for (std::string word; words >> word;) arguments.push_back(word);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int exit_code = run_program(collective, static_cast<int>(argv.size()), argv.data());
  return {exit_code, testing::internal::GetCapturedStdout(),
          testing::internal::GetCapturedStderr()};
}

// Table rows, without headers and comments.
inline std::size_t rows(const std::string& output) {
  std::istringstream lines(output);
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line);) count += line.starts_with('#') ? 0 : 1;
  return count;
}

// All collectives that have a program.
inline auto all_collectives() {
  return testing::Values(Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                         Collective::broadcast, Collective::reduce, Collective::gather,
                         Collective::scatter, Collective::all_to_all, Collective::all_to_all_v,
                         Collective::send_recv);
}

}  // namespace tutti::perf
