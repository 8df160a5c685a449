// The header of a file of a checkpoint (Tutti's own and other programs' safetensors), and the data
// behind it: refused with a sentence, or tensors with different names that lie in the data, each in
// its own part. And the names of such files.
#include <map>
#include <set>

#include "parallel/checkpoint/header.h"
#include "parallel/checkpoint/names.h"
#include "tests/fuzz/target.h"

namespace tutti::fuzz::checkpoint_header {
namespace {

using namespace parallel;

void check(const TensorPart& part, std::span<const std::byte> data, std::set<std::string>& names) {
  require(names.insert(part.name).second, "a tensor is there once");
  const auto* const begin = static_cast<const std::byte*>(part.data);
  require(begin >= data.data() && part.bytes() <= data.size() &&
              begin + part.bytes() <= data.data() + data.size(),
          "a tensor lies in the data");
  std::size_t counted = 0;
  const std::size_t all = elements_of(part.shape);
  std::size_t runs = 0;
  if (part.count > 100'000) return;
  part.for_each_run([&](std::size_t whole, std::size_t at, std::size_t count) {
    require(at == counted && whole <= all && count <= all - whole, "runs are of the tensor");
    counted += count;
    ++runs;
  });
  require(counted == part.count, "runs have all elements");
}

void run(std::string_view input) {
  if (const auto name = file_name_of(input)) {
    require(text_of(*name) == input && name->rank < name->ranks && name->id != 0,
            "a file's name is one");
  }
  // The header, NUL, the data: JSON has no NUL.
  const std::size_t end = std::min(input.find('\0'), input.size());
  const std::string_view text = input.substr(0, end);
  const auto data = bytes_in(input.substr(std::min(end + 1, input.size())));
  Header header;
  if (!accepts(ErrorCode::invalid_argument, [&] { header = read_header(text, data); })) return;
  std::set<std::string> names;
  for (const TensorPart& part : header.parts) check(part, data, names);
  if (header.has_notes) {
    require(
        header.notes.ranks > 0 && header.notes.rank >= 0 && header.notes.rank < header.notes.ranks,
        "a file of a checkpoint is of one of its ranks");
    require(header.checksums.size() == 8 * (header.parts.size() + 1),
            "there is a checksum for each part");
  }
}

std::vector<std::string> seeds() {
  static float memory[24];
  const TensorPart whole = TensorPart::whole("layers.0.weight", DataType::float32, {2, 3}, memory);
  TensorPart part{.name = "b",
                  .type = DataType::bfloat16,
                  .shape = {4, 4},
                  .offset = {0, 2},
                  .extent = {4, 2},
                  .begin = 2,
                  .count = 5,
                  .data = memory};
  const TensorPart parts[] = {whole, part};
  const FileNotes notes{
      .id = 0x89abcdef01234567, .step = 50, .rank = 1, .ranks = 2, .texts = {{"k", "v"}}};
  const auto with_data = [](const std::string& header, std::size_t bytes) {
    return header + std::string(1 + bytes, '\0');
  };
  const std::string header = header_of(parts, notes);
  const std::size_t bytes = whole.bytes() + part.bytes() + 3 * 8;
  const auto altered = [&](std::string_view from, std::string_view to) {
    std::string other = header;
    return other.replace(other.find(from), from.size(), to);
  };
  return {
      with_data(header, bytes),
      // A rank that there is not, and one part twice in place of the other.
      with_data(altered(R"(\"rank\":1)", R"(\"rank\":2147483648)"), bytes),
      with_data(
          altered(
              R"(\"begin\":2,\"extent\":[4,2],\"name\":\"b\",\"offset\":[0,2],\"shape\":[4,4])",
              R"(\"begin\":0,\"extent\":[],\"name\":\"layers.0.weight\",\"offset\":[],\"shape\":[2,3])"),
          bytes),
      with_data(whole_header_of({&whole, 1}, {{"made by", "a program"}}), whole.bytes()),
      with_data(R"({"a":{"dtype":"C64","shape":[1],"data_offsets":[0,8]}})", 8),
      text_of(FileName{3, 8, 0x89abcdef01234567})};
}

const Registered target({"checkpoint_header", run, seeds});

}  // namespace
}  // namespace tutti::fuzz::checkpoint_header
