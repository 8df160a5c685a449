// Layouts as JSON, in all forms that people write: refused with a sentence, or a layout that is the
// same when it is written and read again, and that check() judges.
#include "parallel/reshard/layout.h"
#include "tests/fuzz/target.h"

namespace tutti::fuzz::reshard_layout {
namespace {

using namespace parallel::reshard;

void run(std::string_view input) {
  Layout layout;
  if (!accepts(ErrorCode::invalid_argument, [&] { layout = layout_from_json(input); })) return;
  std::size_t pieces = 0;
  for (const TensorLayout& tensor : layout.tensors) pieces += tensor.pieces.size();
  if (pieces > 4096) return;
  const std::string text = to_json(layout);
  require(to_json(layout_from_json(text)) == text,
          "a layout that was read is written and read the same");
  for (const Side side : {Side::from, Side::to}) {
    if (!accepts(ErrorCode::invalid_argument, [&] { layout.check(side); })) continue;
    for (int r = 0; r < std::min(layout.ranks, 64); ++r) {
      const auto bytes = layout.bytes_of(r);
      for (const TensorLayout& tensor : layout.tensors) {
        for (const Piece& piece : tensor.pieces) {
          if (piece.rank == r)
            require(piece.offset < bytes.at(piece.buffer), "a piece lies in its buffer");
        }
      }
    }
  }
}

std::vector<std::string> seeds() {
  Layout layout(4);
  add_sharded(layout, {"w", DataType::bfloat16, {8, 6}},
              {.mesh = {2, 2}, .placements = {shard(0), replicate()}});
  const int ranks[] = {1, 3};
  add_replicated(layout, {"b", DataType::float32, {5}}, ranks);
  return {to_json(layout),
          R"({"ranks": 3, "tensors": [
{"name": "a", "type": "float32", "shape": [6, 4], "mesh": [3], "placements": [{"shard": 0, "sizes": [1, 2, 3]}]},
{"name": "e", "type": "int8", "shape": [4, 2], "owners": [0, 1, 2, 0], "dimension": 0},
{"name": "f", "type": "uint8", "shape": [7], "runs": [{"rank": 0, "begin": 0, "count": 3},
 {"rank": 1, "begin": 3, "count": 4, "buffer": "unit", "offset": 8}]},
{"name": "r", "type": "float64", "shape": [], "replicated": [0, 2]}]})"};
}

const Registered target({"reshard_layout", run, seeds});

}  // namespace
}  // namespace tutti::fuzz::reshard_layout
