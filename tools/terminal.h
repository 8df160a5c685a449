// Texts for the width of the terminal.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <string_view>

namespace tutti {

/// Of the terminal that standard output is; 0: it is none (a file, a pipe).
int terminal_columns();

/// `before` and `text` as a line. Where it is wider than `columns`, it goes on in lines that begin
/// below the beginning of the text. 0 columns: one line, as programs want it.
std::string wrapped(std::string_view before, std::string_view text, int columns);

/// Prints that, for the terminal.
void print_wrapped(std::string_view before, std::string_view text);

/// What a command is doing, while it prints nothing for seconds: a line on a terminal (standard
/// error) that the next one replaces. "" takes it away.
inline void show_progress(const std::string& text) {
  if (::isatty(STDERR_FILENO) != 0) fmt::print(stderr, "\r\033[K{}", text);
}

}  // namespace tutti
