# docs/settings.md is what `tutti settings --markdown` (TUTTI) prints. Run by ctest.
execute_process(COMMAND ${TUTTI} settings --markdown OUTPUT_VARIABLE generated
                COMMAND_ERROR_IS_FATAL ANY)
file(READ ${DOCUMENT} written)
if(NOT generated STREQUAL written)
  message(FATAL_ERROR "docs/settings.md differs from the table of settings; run `make docs`")
endif()
