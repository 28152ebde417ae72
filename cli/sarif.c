/* Findings of qkv_check as SARIF 2.1.0 (OASIS, sections 3.13 to 3.52): one run, one rule for each id that was found,
 * one result for each finding, at the model's file, with its place as a logical location.
 *
 *     {"ruleId": "Q501", "ruleIndex": 0, "level": "warning", "message": {"text": ..}, "locations": [..]}
 */
#include "sarif.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A path as a relative or absolute URI reference: bytes other than unreserved ones and '/' as %XX. */
static json_t *uri_of(const char *path)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/";
    char *text = must(malloc(3 * strlen(path) + 8)), *at = text;
    if (*path == '/') at += sprintf(at, "file://");
    for (; *path; path++)
        at += strchr(plain, *path) ? sprintf(at, "%c", *path) : sprintf(at, "%%%02X", (unsigned char)*path);
    json_t *j = json_string(text);
    free(text);
    return j;
}

/* The lines of qkv_check_explain: title, severity, meaning, remedy. */
static json_t *rule_of(const char *id)
{
    const char *p = qkv_check_explain(id);
    json_t *line[4], *rule = json_pack("{s:s}", "id", id);
    for (int i = 0; p && i < 4; i++) {
        size_t n = strcspn(p, "\n");
        line[i] = json_stringn(p, n);
        p += n + (p[n] != 0);
    }
    if (p)
        json_object_update_new(rule, json_pack("{s:{s:o}, s:{s:o}, s:{s:o}, s:{s:o}}", "shortDescription", "text",
                                               line[0], "defaultConfiguration", "level", line[1], "fullDescription",
                                               "text", line[2], "help", "text", line[3]));
    return rule;
}

/* The index of the finding's rule, which is added when it is the first of its kind. */
static json_int_t rule_index(json_t *rules, const char *id)
{
    size_t i;
    json_t *rule;
    json_array_foreach(rules, i, rule) if (!strcmp(text_at(rule, "id"), id)) return (json_int_t)i;
    json_array_append_new(rules, rule_of(id));
    return (json_int_t)json_array_size(rules) - 1;
}

static json_t *result_of(const json_t *finding, const char *file, json_t *rules)
{
    const char *id = text_at(finding, "id"), *place = text_at(finding, "place");
    json_t *location = json_pack("{s:{s:{s:o}}}", "physicalLocation", "artifactLocation", "uri", uri_of(file));
    if (*place)
        json_object_set_new(location, "logicalLocations",
                            json_pack("[{s:s, s:s}]", "fullyQualifiedName", place, "kind", "element"));
    char *text = must(malloc(strlen(text_at(finding, "message")) + strlen(text_at(finding, "remedy")) + 16));
    sprintf(text, "%s%s%s", text_at(finding, "message"), *text_at(finding, "remedy") ? "\nTo do: " : "",
            text_at(finding, "remedy"));
    json_t *result = json_pack("{s:s, s:I, s:s, s:{s:s}, s:[o]}", "ruleId", id, "ruleIndex", rule_index(rules, id),
                               "level", text_at(finding, "severity"), "message", "text", text, "locations", location);
    free(text);
    return result;
}

json_t *sarif_of(const json_t *report)
{
    json_t *rules = json_array(), *results = json_array(), *finding;
    size_t i;
    json_array_foreach(json_object_get(report, "findings"), i, finding)
        json_array_append_new(results, result_of(finding, text_at(report, "file"), rules));
    return json_pack("{s:s, s:s, s:[{s:{s:{s:s, s:s, s:s, s:o}}, s:o}]}", "$schema",
                     "https://json.schemastore.org/sarif-2.1.0.json", "version", "2.1.0", "runs", "tool", "driver",
                     "name", "qkv check", "version", qkv_version(), "semanticVersion", qkv_version(), "rules", rules,
                     "results", results);
}
