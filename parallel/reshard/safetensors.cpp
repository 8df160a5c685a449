// Layouts from the headers of safetensors files: 8 bytes with the length of the JSON behind them,
// which says where the tensors lie in the data that follow.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "parallel/reshard/layout.h"

namespace tutti::parallel::reshard {
namespace {

constexpr std::array<std::pair<std::string_view, DataType>, kDataTypes> kFileTypes{
    {{"I8", DataType::int8},
     {"U8", DataType::uint8},
     {"I32", DataType::int32},
     {"U32", DataType::uint32},
     {"I64", DataType::int64},
     {"U64", DataType::uint64},
     {"F16", DataType::float16},
     {"F32", DataType::float32},
     {"F64", DataType::float64},
     {"BF16", DataType::bfloat16},
     {"F8_E4M3", DataType::float8_e4m3},
     {"F8_E5M2", DataType::float8_e5m2}}};

/// JSON's numbers may also be negative, or fractions.
std::vector<std::uint64_t> counts_in(const nlohmann::json& values, std::size_t most) {
  std::vector<std::uint64_t> counts;
  for (const nlohmann::json& value : values) {
    if (!value.is_number_unsigned() || counts.size() == most) return {};
    counts.push_back(value);
  }
  return counts;
}

[[noreturn]] void refuse_file(const std::string& path, const std::string& why) {
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}", path, why));
}

/// The JSON of a file, and how many bytes of data follow it.
std::pair<nlohmann::json, std::uint64_t> header_of_file(const std::string& path) {
  constexpr std::uint64_t kLongest = 100'000'000;  // as the format says
  std::error_code failed;
  const std::uint64_t size = std::filesystem::file_size(path, failed);
  std::ifstream file(path, std::ios::binary);
  std::array<unsigned char, 8> bytes{};
  if (failed || !file.read(reinterpret_cast<char*>(bytes.data()), 8)) {
    refuse_file(path, "cannot be read, or is no safetensors file");
  }
  std::uint64_t length = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) length = length << 8 | bytes[i];
  if (length > kLongest || length > size - 8)
    refuse_file(path, "no safetensors file: its header is too long");
  std::string text(length, ' ');
  if (!file.read(text.data(), static_cast<std::streamsize>(length))) {
    refuse_file(path, "its header cannot be read");
  }
  nlohmann::json header = nlohmann::json::parse(text, nullptr, false);
  if (!header.is_object()) refuse_file(path, "no safetensors file: its header is no JSON object");
  return {std::move(header), size - 8 - length};
}

void add_from_file(Layout& layout, int rank, const std::string& path) {
  const auto [header, size] = header_of_file(path);
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    try {
      const auto type = std::ranges::find(kFileTypes, entry.at("dtype").get<std::string>(),
                                          &std::pair<std::string_view, DataType>::first);
      if (type == kFileTypes.end())
        refuse_file(path, fmt::format("tensor '{}' has a type that Tutti does not have", name));
      const nlohmann::json& shape = entry.at("shape");
      const Tensor tensor{name, type->second, counts_in(shape, kMostDimensions)};
      const auto place = counts_in(entry.at("data_offsets"), 2);
      std::uint64_t room = size / size_of(tensor.type);
      for (const std::uint64_t n : tensor.shape) room = n == 0 ? room : room / n;
      // Where it has elements, they all have room, so their number is one.
      const bool fits = room > 0 || std::ranges::count(tensor.shape, 0U) > 0;
      if (!shape.is_array() || tensor.shape.size() != shape.size() || place.size() != 2 ||
          place[0] > place[1] || place[1] > size || !fits ||
          place[1] - place[0] != tensor.elements() * size_of(tensor.type)) {
        refuse_file(path, fmt::format("tensor '{}' does not lie where it says", name));
      }
      layout.tensor(tensor);
      if (tensor.elements() == 0) continue;
      add_piece(layout, tensor, rank, Box::whole(tensor.shape), "data", place[0]);
    } catch (const nlohmann::json::exception& e) {
      refuse_file(path, fmt::format("tensor '{}': {}", name, e.what()));
    }
  }
}

}  // namespace

Layout layout_of_safetensors(std::span<const std::string> paths) {
  Layout layout(static_cast<int>(paths.size()));
  for (std::size_t i = 0; i < paths.size(); ++i)
    add_from_file(layout, static_cast<int>(i), paths[i]);
  return layout;
}

}  // namespace tutti::parallel::reshard
