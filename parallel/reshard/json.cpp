// Layouts as JSON, canonical and as people write them (docs/reshard.md).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "core/nearest.h"
#include "parallel/json_text.h"
#include "parallel/reshard/layout.h"

namespace tutti::parallel::reshard {
namespace {

using nlohmann::json;

/// An object of the text, and where it is, for errors.
class Object {
 public:
  /// Refuses all fields but these.
  Object(const json& value, std::string where, std::initializer_list<std::string_view> fields)
      : value_(value), where_(std::move(where)) {
    if (!value.is_object()) refuse("is no object");
    const std::vector<std::string_view> known(fields);
    for (const auto& [name, field] : value.items()) {
      if (std::ranges::find(known, name) != known.end()) continue;
      refuse(fmt::format("has a field {}, which is not known{}", json_text(name),
                         did_you_mean(name, known)));
    }
  }

  bool has(const char* field) const { return value_.contains(field); }
  const json& at(const char* field) const {
    const auto found = value_.find(field);
    if (found == value_.end()) refuse(fmt::format("has no field \"{}\"", field));
    return *found;
  }
  std::string text(const char* field) const {
    const json& value = at(field);
    if (!value.is_string()) refuse(fmt::format("has a \"{}\" that is no text", field));
    return value;
  }
  std::uint64_t count(const char* field) const { return count_of(at(field), field); }
  int rank(const char* field) const { return rank_of(at(field), field); }
  std::vector<std::uint64_t> counts(const char* field) const {
    std::vector<std::uint64_t> all;
    for (const json& value : list(field)) all.push_back(count_of(value, field));
    return all;
  }
  std::vector<int> ranks(const char* field) const {
    std::vector<int> all;
    for (const json& value : list(field)) all.push_back(rank_of(value, field));
    return all;
  }
  const json& list(const char* field) const {
    const json& value = at(field);
    if (!value.is_array()) refuse(fmt::format("has a \"{}\" that is no list", field));
    return value;
  }
  std::uint64_t count_of(const json& value, const char* field) const {
    if (!value.is_number_unsigned()) {
      refuse(fmt::format("has something else than a whole number from 0 on in \"{}\"", field));
    }
    return value;
  }
  int rank_of(const json& value, const char* field) const {
    const std::uint64_t number = count_of(value, field);
    if (number > 1u << 20) refuse(fmt::format("has {} in \"{}\": too large", number, field));
    return static_cast<int>(number);
  }
  const std::string& where() const { return where_; }

  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ErrorCode::invalid_argument, fmt::format("layout: {} {}", where_, why));
  }

 private:
  const json& value_;
  const std::string where_;
};

Tensor tensor_of(const Object& o) {
  const auto type = parse_data_type(o.text("type"));
  if (!type) o.refuse(fmt::format("has the type \"{}\", which is not known", o.text("type")));
  return {o.text("name"), *type, o.counts("shape")};
}

Placement placement_of(const json& value, const Object& tensor) {
  if (value.is_object()) {
    const Object o(value, tensor.where() + ": a placement", {"shard", "sizes"});
    return {o.rank("shard"), o.counts("sizes")};
  }
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  if (text == "replicate") return replicate();
  constexpr std::string_view kShard = "shard ";
  if (text.starts_with(kShard) && text.size() == kShard.size() + 1 && text.back() >= '0' &&
      text.back() <= '9') {
    return shard(text.back() - '0');
  }
  tensor.refuse(
      "has a placement that is neither \"replicate\", \"shard 0\" nor {\"shard\": 0, \"sizes\": "
      "[...]}");
}

void add_mesh(Layout& layout, const Tensor& tensor, const Object& o) {
  Sharding sharding{o.ranks("mesh"), {}, o.has("ranks") ? o.ranks("ranks") : std::vector<int>{}};
  for (const json& p : o.list("placements")) sharding.placements.push_back(placement_of(p, o));
  add_sharded(layout, tensor, sharding);
}

void add_pieces(Layout& layout, const Tensor& tensor, const Object& of) {
  layout.tensor(tensor);
  for (const json& value : of.list("pieces")) {
    const Object o(value, of.where() + ": a piece", {"rank", "buffer", "offset", "box", "strides"});
    std::vector<Range> ranges;
    for (const json& range : o.list("box")) {
      if (!range.is_array() || range.size() != 2) o.refuse("has a box that is no list of pairs");
      ranges.push_back({o.count_of(range[0], "box"), o.count_of(range[1], "box")});
    }
    if (ranges.size() != tensor.shape.size()) {
      o.refuse(
          fmt::format("has {} dimensions, and the tensor {}", ranges.size(), tensor.shape.size()));
    }
    add_piece(layout, tensor, o.rank("rank"), Box(ranges),
              o.has("buffer") ? o.text("buffer") : tensor.name,
              o.has("offset") ? o.count("offset") : 0,
              o.has("strides") ? o.counts("strides") : std::vector<std::uint64_t>{});
  }
}

void add_runs(Layout& layout, const Tensor& tensor, const Object& of) {
  layout.tensor(tensor);
  for (const json& value : of.list("runs")) {
    const Object o(value, of.where() + ": a run", {"rank", "buffer", "offset", "begin", "count"});
    add_run(layout, tensor, o.rank("rank"), o.count("begin"), o.count("count"),
            o.has("buffer") ? o.text("buffer") : tensor.name,
            o.has("offset") ? o.count("offset") : 0);
  }
}

void add_from_json(Layout& layout, const json& value, std::size_t number) {
  const auto named = value.is_object() ? value.find("name") : value.end();
  const std::string where = value.is_object() && named != value.end() && named->is_string()
                                ? fmt::format("tensor {}", json_text(*named))
                                : fmt::format("tensor number {}", number);
  const Object o(value, where,
                 {"name", "type", "shape", "mesh", "placements", "ranks", "replicated", "owners",
                  "dimension", "runs", "pieces"});
  const Tensor tensor = tensor_of(o);
  if (tensor.shape.size() > kMostDimensions) {
    o.refuse(
        fmt::format("has {} dimensions: there may be {}", tensor.shape.size(), kMostDimensions));
  }
  const char* form = nullptr;
  for (const char* field : {"mesh", "replicated", "owners", "runs", "pieces"}) {
    if (!o.has(field)) continue;
    if (form != nullptr) o.refuse(fmt::format("has \"{}\" and \"{}\": one says all", form, field));
    form = field;
  }
  if (form == nullptr) {
    o.refuse(
        "says not who has it: with \"mesh\", \"replicated\", \"owners\", \"runs\" or "
        "\"pieces\"");
  }
  switch (form[0]) {
    case 'm':
      return add_mesh(layout, tensor, o);
    case 'o':
      return add_owned(layout, tensor, o.has("dimension") ? o.rank("dimension") : 0,
                       o.ranks("owners"));
    case 'p':
      return add_pieces(layout, tensor, o);
    default:
      if (form == std::string_view("runs")) return add_runs(layout, tensor, o);
      return add_replicated(layout, tensor, o.ranks("replicated"));
  }
}

}  // namespace

std::string to_json(const Layout& layout) {
  std::string text = fmt::format("{{\"ranks\": {}, \"tensors\": [", layout.ranks);
  for (std::size_t t = 0; t < layout.tensors.size(); ++t) {
    const TensorLayout& tensor = layout.tensors[t];
    text += fmt::format("{}\n{{\"name\": {}, \"type\": \"{}\", \"shape\": [{}], \"pieces\": [",
                        t == 0 ? "" : ",", json_text(tensor.name), name(tensor.type),
                        fmt::join(tensor.shape, ", "));
    for (std::size_t i = 0; i < tensor.pieces.size(); ++i) {
      const Piece& p = tensor.pieces[i];
      std::string box;
      for (std::size_t d = 0; d < p.box.dimensions(); ++d) {
        box += fmt::format("{}[{}, {}]", d == 0 ? "" : ", ", p.box[d].begin, p.box[d].end);
      }
      text += fmt::format(
          "{}{{\"rank\": {}, \"buffer\": {}, \"offset\": {}, \"box\": [{}], \"strides\": [{}]}}",
          i == 0 ? "" : ", ", p.rank, json_text(layout.buffers[p.buffer]), p.offset, box,
          fmt::join(p.strides.begin(),
                    p.strides.begin() + static_cast<std::ptrdiff_t>(p.box.dimensions()), ", "));
    }
    text += "]}";
  }
  return text + "\n]}\n";
}

Layout layout_from_json(std::string_view text) {
  const json value = json::parse(text, nullptr, false);
  if (value.is_discarded()) {
    throw Error(ErrorCode::invalid_argument, "layout: the text is no JSON");
  }
  const Object o(value, "the layout", {"ranks", "tensors"});
  Layout layout(o.rank("ranks"));
  std::size_t number = 0;
  for (const json& tensor : o.list("tensors")) {
    const std::size_t before = layout.tensors.size();
    add_from_json(layout, tensor, number++);
    if (layout.tensors.size() == before) {
      o.refuse(fmt::format("has tensor '{}' twice", layout.tensors.back().name));
    }
  }
  return layout;
}

}  // namespace tutti::parallel::reshard
