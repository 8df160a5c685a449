// Programs of the words that processes and threads share, each made of the library's own functions.
#pragma once

#include <string>
#include <vector>

#include "tests/memory_model/explorer.h"

namespace tutti::model {

struct Words {
  std::string name;
  Program (*program)();
};
const std::vector<Words>& words();

}  // namespace tutti::model
