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
std::vector<Words> words_of_links();   // words_links.cpp
std::vector<Words> words_of_ranks();   // words_ranks.cpp
std::vector<Words> words_of_memory();  // words_memory.cpp

}  // namespace tutti::model
