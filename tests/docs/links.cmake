# Links lead somewhere: those between the documents, and the documents that sources and help texts
# name, as in docs/settings.md#settings. A heading is checked where one is given. Run by ctest in
# the project's folder (ROOT).
set(wrong "")

# Headings as GitHub names them: in small letters, without punctuation, with hyphens for spaces.
function(check from file heading)
  if(NOT EXISTS "${file}")
    set(wrong "${wrong}\n${from}: there is no ${file}" PARENT_SCOPE)
  elseif(heading)
    file(STRINGS "${file}" lines REGEX "^#+ ")
    foreach(line IN LISTS lines)
      string(REGEX REPLACE "^#+ +" "" line "${line}")
      string(TOLOWER "${line}" line)
      string(REGEX REPLACE "[^a-z0-9 _-]" "" line "${line}")
      string(REPLACE " " "-" line "${line}")
      if(line STREQUAL heading)
        return()
      endif()
    endforeach()
    set(wrong "${wrong}\n${from}: ${file} has no heading #${heading}" PARENT_SCOPE)
  endif()
endfunction()

# What `regex` finds in the text of `from` are paths below `folder`, or headings of `from` itself.
function(check_all from regex folder)
  file(READ "${from}" text)
  # Brackets and semicolons would mean something to CMake's lists.
  string(REPLACE "](" "link to " text "${text}")
  string(REGEX REPLACE "[][;]" " " text "${text}")
  string(REGEX MATCHALL "${regex}" links "${text}")
  foreach(link IN LISTS links)
    string(REGEX REPLACE "^link to |\\)$" "" link "${link}")
    string(REGEX MATCH "^([^#]*)#?(.*)$" link "${link}")
    if(CMAKE_MATCH_1 STREQUAL "")
      check("${from}" "${from}" "${CMAKE_MATCH_2}")
    else()
      check("${from}" "${folder}/${CMAKE_MATCH_1}" "${CMAKE_MATCH_2}")
    endif()
  endforeach()
  set(wrong "${wrong}" PARENT_SCOPE)
endfunction()

file(GLOB documents "${ROOT}/*.md" "${ROOT}/docs/*.md")
foreach(document IN LISTS documents)
  get_filename_component(folder "${document}" DIRECTORY)
  check_all("${document}" "link to [^ :)]+\\)" "${folder}")  # no colon: not https://
endforeach()

set(sources "")
foreach(folder IN ITEMS bench bindings bootstrap cmake collectives comm core device examples execute parallel
        tests tools topology transport)
  file(GLOB_RECURSE found "${ROOT}/${folder}/*")
  list(APPEND sources ${found})
endforeach()
foreach(source IN LISTS sources)
  check_all("${source}" "docs/[a-z-]+\\.md(#[a-z0-9_-]+)?" "${ROOT}")
endforeach()

if(wrong)
  message(FATAL_ERROR "links that lead nowhere:${wrong}")
endif()
