#include "parallel/checkpoint/header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "core/error.h"
#include "parallel/json_text.h"

namespace tutti::parallel {
namespace {

using nlohmann::json;

constexpr const char* kMetadata = "__metadata__";
constexpr const char* kChecksums = "tutti.checksums";
constexpr int kVersion = 1;
constexpr std::size_t kAlignment = 64;

constexpr std::array<std::pair<DataType, const char*>, kDataTypes> kTypes{
    {{DataType::int8, "I8"},
     {DataType::uint8, "U8"},
     {DataType::int32, "I32"},
     {DataType::uint32, "U32"},
     {DataType::int64, "I64"},
     {DataType::uint64, "U64"},
     {DataType::float16, "F16"},
     {DataType::float32, "F32"},
     {DataType::float64, "F64"},
     {DataType::bfloat16, "BF16"},
     {DataType::float8_e4m3, "F8_E4M3"},
     {DataType::float8_e5m2, "F8_E5M2"}}};

const char* name_of(DataType type) {
  return std::ranges::find(kTypes, type, &std::pair<DataType, const char*>::first)->second;
}

std::optional<DataType> type_of(const std::string& name) {
  for (const auto& [type, text] : kTypes) {
    if (name == text) return type;
  }
  return std::nullopt;
}

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorCode::invalid_argument, why); }

void check_text(std::string_view what, const std::string& text) {
  try {
    (void)json(text).dump();
  } catch (const json::exception&) {
    refuse(fmt::format("{} {} is not UTF-8, as all text in a file of tensors is", what,
                       json_text(text)));
  }
}

/// A JSON object of a header. Throws Error(invalid_argument) if it is none, or an object in it has
/// a name twice.
json parsed(std::string_view text) {
  std::vector<std::set<std::string>> names;  // of the objects around
  const auto look = [&](int, json::parse_event_t event, const json& value) {
    if (event == json::parse_event_t::object_start) names.emplace_back();
    if (event == json::parse_event_t::object_end) names.pop_back();
    if (event == json::parse_event_t::key && !names.back().insert(value).second) {
      refuse(
          fmt::format("its header has {} twice", json_text(value.get_ref<const std::string&>())));
    }
    return true;
  };
  json object = json::parse(text, look, false);
  if (!object.is_object()) refuse("no file of tensors: its header is no JSON");
  return object;
}

/// A count in a header. (JSON's numbers may also be negative, or fractions.)
std::size_t count_of(const json& value) {
  if (!value.is_number_unsigned()) {
    refuse("its header has something else than a whole number from 0 on as a count");
  }
  return value;
}

int rank_of(const json& value) {
  const std::size_t number = count_of(value);
  if (number > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    refuse(fmt::format("its header has {} as a number of a rank", number));
  }
  return static_cast<int>(number);
}

std::vector<std::size_t> counts_of(const json& values) {
  if (!values.is_array()) refuse("its header has a shape that is no array");
  std::vector<std::size_t> counts;
  for (const json& value : values) counts.push_back(count_of(value));
  return counts;
}

/// The header, padded so that data begin aligned, as safetensors allows.
std::string padded(const json& header) {
  std::string text = header.dump();
  text.append((kAlignment - (8 + text.size()) % kAlignment) % kAlignment, ' ');
  return text;
}

/// A header of the tensors, and of checksums behind them.
std::string header_of(std::span<const TensorPart> parts, json header, bool checksums) {
  std::size_t at = 0;
  for (const TensorPart& p : parts) {
    const bool is_whole = p.extent.empty() && p.begin == 0 && p.count == elements_of(p.shape);
    header[p.name] = {{"dtype", name_of(p.type)},
                      {"shape", is_whole ? p.shape : std::vector<std::size_t>{p.count}},
                      {"data_offsets", {at, at + p.bytes()}}};
    at += p.bytes();
  }
  if (checksums) {
    header[kChecksums] = {{"dtype", "U64"},
                          {"shape", {parts.size() + 1}},
                          {"data_offsets", {at, at + 8 * (parts.size() + 1)}}};
  }
  return padded(header);
}

/// Where a tensor's bytes are in the data of its file.
struct Place {
  std::size_t from = 0, to = 0;
};
Place place_of(const std::string& name, const json& tensor, std::size_t size) {
  const json& both = tensor.at("data_offsets");
  const Place place{count_of(both.at(0)), count_of(both.at(1))};
  if (place.from > place.to || place.to > size) {
    refuse(fmt::format("a torn file: tensor '{}' lies behind its end", name));
  }
  return place;
}

/// A tensor by its entry in the header, and by Tutti's own entry for it (or null). `data`: of the
/// file. Throws Error(invalid_argument).
TensorPart part_of(const std::string& name, DataType type, const json& tensor, const json* piece,
                   std::span<const std::byte> data) {
  const auto [from, to] = place_of(name, tensor, data.size());
  TensorPart part{.name = name, .type = type, .shape = counts_of(tensor.at("shape"))};
  part.count = elements_of(part.shape);
  part.data = const_cast<std::byte*>(data.data() + from);
  if (part.bytes() != to - from) {
    refuse(fmt::format("tensor '{}' of {} {} has {} bytes", name, text_of(part.shape),
                       name_of(type), to - from));
  }
  if (piece != nullptr) {
    part.shape = counts_of(piece->at("shape"));
    part.offset = counts_of(piece->at("offset"));
    part.extent = counts_of(piece->at("extent"));
    part.begin = count_of(piece->at("begin"));
  }
  part.check();
  return part;
}

struct Tensors {
  std::vector<TensorPart> parts;
  std::map<std::string, std::string> others;  // of types that Tutti does not have
};

/// The tensors of a header. `pieces`: Tutti's own entries for its parts, or null. `data`: of the
/// file. Throws Error(invalid_argument).
Tensors tensors_of(const json& header, const json* pieces, std::span<const std::byte> data) {
  std::vector<std::pair<Place, std::string>> tensors;  // in the order of the data
  for (const auto& [name, tensor] : header.items()) {
    if (name != kMetadata) tensors.emplace_back(place_of(name, tensor, data.size()), name);
  }
  std::ranges::sort(tensors, {}, [](const auto& t) { return std::pair(t.first.from, t.first.to); });
  // The format has no gaps, and nothing after the last tensor.
  std::size_t end = 0;
  for (const auto& [place, name] : tensors) {
    if (place.from != end) {
      refuse(fmt::format("tensor '{}' does not begin where the one before it ends", name));
    }
    end = place.to;
  }
  if (end != data.size()) {
    refuse(fmt::format("a torn file: it has {} bytes of data, and its tensors have {}", data.size(),
                       end));
  }
  Tensors result;
  const auto add = [&](const std::string& name, const json* piece) {
    const auto tensor = header.find(name);
    if (tensor == header.end()) refuse(fmt::format("it has no tensor '{}'", name));
    const std::string type_name = tensor->at("dtype");
    if (const auto type = type_of(type_name)) {
      result.parts.push_back(part_of(name, *type, *tensor, piece, data));
    } else if (piece == nullptr) {
      result.others[name] = type_name;
    } else {
      refuse(fmt::format("tensor '{}' is of type {}, which is not known", name, type_name));
    }
  };
  if (pieces != nullptr) {
    if (pieces->size() + 1 != tensors.size()) refuse("its header contradicts itself");
    std::set<std::string> seen;
    for (const json& piece : *pieces) {
      const std::string name = piece.at("name");
      if (name == kChecksums || !seen.insert(name).second) refuse("its header contradicts itself");
      add(name, &piece);
    }
  } else {
    for (const auto& [place, name] : tensors) {
      if (name != kChecksums) add(name, nullptr);
    }
  }
  return result;
}

/// read_header(), but for what JSON itself throws.
Header read(std::string_view text, std::span<const std::byte> data) {
  const json header = parsed(text);
  Header result;
  json of_tutti;
  if (const auto metadata = header.find(kMetadata); metadata != header.end()) {
    if (const auto own = metadata->find("tutti"); own != metadata->end()) {
      of_tutti = parsed(own->get<std::string>());
      if (of_tutti.at("version") != kVersion) {
        refuse(fmt::format("written by another version of Tutti (format {}, this one reads {})",
                           of_tutti.at("version").dump(), kVersion));
      }
      result.has_notes = true;
    } else {
      result.notes.texts = metadata->get<std::map<std::string, std::string>>();
    }
  }
  Tensors tensors = tensors_of(header, result.has_notes ? &of_tutti.at("pieces") : nullptr, data);
  result.parts = std::move(tensors.parts);
  result.others = std::move(tensors.others);
  if (result.has_notes) {
    result.notes = {.id = count_of(of_tutti.at("id")),
                    .step = count_of(of_tutti.at("step")),
                    .rank = rank_of(of_tutti.at("rank")),
                    .ranks = rank_of(of_tutti.at("ranks")),
                    .texts = of_tutti.at("texts")};
    if (result.notes.rank >= result.notes.ranks) refuse("its header contradicts itself");
    const auto sums = header.find(kChecksums);
    if (sums == header.end()) refuse("it has no checksums");
    const Place place = place_of(kChecksums, *sums, data.size());
    if (place.to - place.from != 8 * (result.parts.size() + 1)) {
      refuse("its header contradicts itself");
    }
    result.checksums = data.subspan(place.from, place.to - place.from);
  } else if (header.contains(kChecksums)) {
    // A header with Tutti's checksums, but without its metadata, was changed.
    refuse("its header is not what was written");
  }
  return result;
}

}  // namespace

void check_writable(std::span<const TensorPart> parts,
                    const std::map<std::string, std::string>& texts) {
  std::set<std::string_view> names;
  for (const TensorPart& p : parts) {
    p.check();
    check_text("the name of a tensor", p.name);
    if (p.name == kMetadata || p.name == kChecksums) {
      refuse(
          fmt::format("a tensor cannot have the name '{}': files have it for themselves", p.name));
    }
    if (p.count > 0 && !names.insert(p.name).second) {
      refuse(fmt::format("two parts of tensor '{}': a file has one", p.name));
    }
  }
  for (const auto& [name, text] : texts) {
    check_text("the name of a text", name);
    check_text(fmt::format("the text '{}'", name), text);
  }
}

std::string header_of(std::span<const TensorPart> parts, const FileNotes& notes) {
  json pieces = json::array();  // in the order of the data, which names are not
  for (const TensorPart& p : parts) {
    pieces.push_back({{"name", p.name},
                      {"shape", p.shape},
                      {"offset", p.offset},
                      {"extent", p.extent},
                      {"begin", p.begin}});
  }
  const json of_tutti = {{"version", kVersion}, {"id", notes.id},       {"step", notes.step},
                         {"rank", notes.rank},  {"ranks", notes.ranks}, {"texts", notes.texts},
                         {"pieces", pieces}};
  return header_of(parts, {{kMetadata, {{"tutti", of_tutti.dump()}}}}, true);
}

std::string whole_header_of(std::span<const TensorPart> tensors,
                            const std::map<std::string, std::string>& texts) {
  json header = json::object();
  if (!texts.empty()) header[kMetadata] = texts;
  return header_of(tensors, std::move(header), false);
}

Header read_header(std::string_view text, std::span<const std::byte> data) {
  try {
    return read(text, data);
  } catch (const json::exception& e) {
    refuse(fmt::format("its header has something else than expected ({})", e.what()));
  }
}

}  // namespace tutti::parallel
