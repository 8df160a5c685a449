// A safetensors file of another program as a layout: refused with a sentence, or tensors that lie
// in the file.
#include <sys/mman.h>
#include <unistd.h>

#include "core/file_descriptor.h"
#include "parallel/checkpoint/header.h"
#include "parallel/reshard/layout.h"
#include "tests/fuzz/target.h"

namespace tutti::fuzz::safetensors_file {
namespace {

using namespace parallel;

void run(std::string_view input) {
  static const FileDescriptor file(::memfd_create("safetensors", MFD_CLOEXEC));
  require(::ftruncate(file.fd(), 0) == 0 && ::pwrite(file.fd(), input.data(), input.size(), 0) ==
                                                static_cast<ssize_t>(input.size()),
          "the file is there");
  const std::string path = "/proc/self/fd/" + std::to_string(file.fd());
  reshard::Layout layout;
  if (!accepts(ErrorCode::invalid_argument, [&] {
        layout = reshard::layout_of_safetensors({&path, 1});
      }))
    return;
  for (const auto& tensor : layout.tensors) {
    double elements = 1;
    for (const std::uint64_t n : tensor.shape) elements *= static_cast<double>(n);
    require(
        elements * static_cast<double>(size_of(tensor.type)) <= static_cast<double>(input.size()),
        "a tensor is no larger than its file");
  }
  for (const std::uint64_t bytes : layout.bytes_of(0)) {
    require(bytes <= input.size(), "the data are no longer than the file");
  }
}

std::vector<std::string> seeds() {
  static float memory[6];
  const TensorPart parts[] = {TensorPart::whole("weight", DataType::float32, {2, 3}, memory),
                              TensorPart::whole("none", DataType::int8, {0, 7}, nullptr)};
  const std::string header = whole_header_of(parts, {{"format", "pt"}});
  const auto file = [](const std::string& text, std::size_t bytes) {
    return text_of_bytes(std::uint64_t{text.size()}) + text + std::string(bytes, '\0');
  };
  return {file(header, 24),
          // 2^64 elements count as none where nobody looks.
          file(R"({"w":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 8),
          file(R"({"w":{"dtype":"U8","shape":[-1],"data_offsets":[0,1e9]}})", 8)};
}

const Registered target({"safetensors_file", run, seeds});

}  // namespace
}  // namespace tutti::fuzz::safetensors_file
