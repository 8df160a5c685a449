#include "parallel/json_text.h"

#include <nlohmann/json.hpp>

namespace tutti::parallel {

std::string json_text(const std::string& text) {
  using nlohmann::json;
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace tutti::parallel
