// The output of nccl-tests, and of rccl-tests, as tables: measured rows of equal calls, and what
// the text says of where they ran. Texts come from terminals, launchers, Markdown and programs that
// mix in lines of their own. The reader leaves incomplete rows out, and counts them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/collective.h"
#include "tools/cluster/nccl_debug.h"

namespace tutti {

struct LogRow {
  std::int64_t bytes = 0;
  std::string type;
  double us = 0, algbw = 0, busbw = 0;  // out of place
  int line = 0;
  bool adds = false;        // it names an operator
  bool in_place = true;     // it has times for buffers in place, too, or no columns for them
  std::optional<int> root;  // -1: none
};

struct NcclLog {
  std::string source;
  std::optional<Collective> collective;  // as the text or the file's name says, or the rows show
  int ranks = 0;                         // 0: nothing says it
  int hosts = 0;                         // that share an NVLink domain count as one
  int gpus_of_thread = 1;
  std::string gpu;  // model, as the text or the file's name says
  /// What the text does not say: the file's name does; or rows do, as far as they can; or nobody,
  /// and it is as it mostly is.
  struct Guessed {
    bool ranks = false, gpu = false, hosts = false, eight_of_a_host = false;
    bool ranks_by_rows = false;  // of the numbers of ranks that busbw / algbw fits, one
    bool collective = false;     // by the log's name
    bool collective_by_rows = false;
    bool one_domain = false;  // several hosts whose GPUs share NVLink switches
  };
  Guessed guessed;
  std::optional<int> warmups;  // calls before those that were measured
  NcclDebug debug;             // what NCCL says of itself
  std::vector<LogRow> rows;
  int left_out = 0;         // rows of the file that are not whole
  int of_others = 0;        // rows of the file's other tables
  std::string unpredicted;  // a test of no collective: hypercube
};

/// All tables of a text, in its order: a table has rows of one collective, with one number of
/// ranks, and a size once, but for repetitions. At least one, which may have no rows. Never throws
/// because of the text. `name` is the text's origin, and may say what the text does not
/// ("16xH100_2node_...allgather.log").
std::vector<NcclLog> parse_nccl_logs(std::string_view text, const std::string& name);

/// The first table, or the first of `wanted`.
NcclLog parse_nccl_log(std::string_view text, const std::string& name,
                       std::optional<Collective> wanted = std::nullopt);

}  // namespace tutti
