// The output of nccl-tests and rccl-tests, in all its dialects: rows of sizes and times, and the
// description of the run. Texts come from terminals, launchers, Markdown and programs that mix in
// lines of their own. The reader leaves incomplete rows out, and counts them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/collective.h"

namespace tutti {

struct LogRow {
  std::int64_t bytes = 0;
  std::string type;
  double us = 0, algbw = 0, busbw = 0;  // out of place
  int line = 0;
  bool adds = false;  // it names an operator
  int test = 0;       // of the file's tests
};

struct NcclLog {
  std::string source;
  std::optional<Collective> collective;  // as the text or the file's name says, or the rows show
  int ranks = 0;                         // 0: nothing says it
  int hosts = 0;
  int gpus_of_thread = 1;
  std::string gpu;  // model, as the text or the file's name says
  /// What the text does not say: the file's name does; or nobody, and a host has eight ranks.
  struct Guessed {
    bool ranks = false, gpu = false, hosts = false, eight_of_a_host = false;
  };
  Guessed guessed;
  std::vector<LogRow> rows;
  int left_out = 0;         // rows that are not whole
  int of_others = 0;        // rows of other tests in the file, which are left out, too
  std::string unpredicted;  // a test of no collective: sendrecv, hypercube
};

/// Never throws because of the text. `name` is the text's origin, and may say what the text does
/// not ("16xH100_2node_...allgather.log"). Of several tests in a file the first one counts, or the
/// first of `wanted`, with all tests that are like it.
NcclLog parse_nccl_log(std::string_view text, const std::string& name,
                       std::optional<Collective> wanted = std::nullopt);

}  // namespace tutti
