#include "tests/memory_model/words.h"

namespace tutti::model {

const std::vector<Words>& words() {
  static const std::vector<Words> all = [] {
    std::vector<Words> programs = words_of_links();
    for (const auto& more : {words_of_ranks(), words_of_memory()}) {
      programs.insert(programs.end(), more.begin(), more.end());
    }
    return programs;
  }();
  return all;
}

}  // namespace tutti::model
