// The report of rank 0: the table on standard output, and the same as JSON in a file. It builds the
// JSON in memory and writes it once, so the file is whole or empty.
#pragma once

#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/perf/table.h"

namespace tutti::perf {

/// The largest values of all ranks, in bytes.
struct MemoryReport {
  std::int64_t before_buffers = 0;
  std::int64_t buffers = 0;
  std::int64_t peak = 0;
};

class Report {
 public:
  /// Opens the output file, if there is one: throws Error(system) if that fails. `arguments` are
  /// the command line.
  Report(std::string_view program, const PerfOptions& options,
         const std::vector<std::string>& arguments);
  ~Report();

  void start(const std::vector<RankInfo>& ranks, const std::string& nccl_version = "",
             const std::string& transport = "");
  /// From here on the report has Tutti alone.
  void drop_nccl(const std::string& why);
  void add(const Row& row);
  /// A line of the table that is no row.
  void note(const std::string& line) { print(line); }
  void finish(const Total& total, const MemoryReport& memory);

 private:
  struct Json;
  void print(const std::string& text);

  std::string program_;
  PerfOptions options_;
  std::ofstream file_;
  std::unique_ptr<Json> json_;
};

/// Local date and time: "2026-01-31 23:59:59".
std::string timestamp();

}  // namespace tutti::perf
