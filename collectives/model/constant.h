// A number that predictions are made from, as tables of them list it.
#pragma once

#include <string_view>

namespace tutti {

template <class Owner>
struct Constant {
  std::string_view name;
  std::string_view unit;
  double Owner::*value;
  std::string_view meaning;      // or where it is from
  bool may_be_left_out = false;  // of a file: then it is as in the defaults
};

}  // namespace tutti
